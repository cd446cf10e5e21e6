// Wrong calls that load models, query engines, tokenize and detokenize.
#include <cmath>

#include "../paths.h"
#include "misuse.h"

namespace sluice::test {
namespace {

Misuse wrong_load(const char* what, void (*change)(sluice_load_options&)) {
  return {"sluice_load", what,
          with(sluice_load_options_default, change, [](Rig& r, const sluice_load_options& o) {
            return sluice_load(kSample.c_str(), &o, &r.made_engine);
          })};
}

int32_t read_nothing(void*, uint64_t, void*, size_t) {
  return 1;
}

sluice_status load_reader(Rig& r, void (*change)(sluice_reader&)) {
  sluice_reader reader = {};
  reader.size = sizeof reader;
  reader.length = 100;
  reader.read = read_nothing;
  change(reader);
  return sluice_load_reader(&reader, nullptr, &r.made_engine);
}

}  // namespace

std::vector<Misuse> wrong_loading() {
  return {
      {"sluice_load_options_default", "null",
       [](Rig&) { return sluice_load_options_default(nullptr, sizeof(sluice_load_options)); }},
      {"sluice_load_options_default", "too small",
       [](Rig&) {
         sluice_load_options o;
         return sluice_load_options_default(&o, sizeof o - 1);
       }},
      {"sluice_load", "null path",
       [](Rig& r) { return sluice_load(nullptr, nullptr, &r.made_engine); }},
      {"sluice_load", "null result",
       [](Rig&) { return sluice_load(kSample.c_str(), nullptr, nullptr); }},
      {"sluice_load", "no such file",
       [](Rig& r) { return sluice_load("/nowhere/x.gguf", nullptr, &r.made_engine); },
       SLUICE_NOT_FOUND},
      {"sluice_load", "not a model",
       [](Rig& r) {
         return sluice_load((source_dir() + "/LICENSE").c_str(), nullptr, &r.made_engine);
       },
       SLUICE_NOT_GGUF},
      wrong_load("early_exit", [](sluice_load_options& o) { o.early_exit = 1.5; }),
      wrong_load("early_exit NAN", [](sluice_load_options& o) { o.early_exit = NAN; }),
      wrong_load("early_exit without measurements in the file",
                 [](sluice_load_options& o) { o.early_exit = 0.5; }),
      wrong_load("size", [](sluice_load_options& o) { o.size = 3; }),
      wrong_load("huge size", [](sluice_load_options& o) { o.size = SIZE_MAX; }),
      wrong_load("threads", [](sluice_load_options& o) { o.threads = 65; }),
      wrong_load("n_ctx", [](sluice_load_options& o) { o.n_ctx = -1; }),
      wrong_load("huge context", [](sluice_load_options& o) { o.n_ctx = (1 << 24) + 1; }),
      wrong_load("sessions", [](sluice_load_options& o) { o.sessions = 0; }),
      wrong_load("logits_rows", [](sluice_load_options& o) { o.logits_rows = 257; }),
      wrong_load("structured_output", [](sluice_load_options& o) { o.structured_output = 2; }),
      wrong_load("preload", [](sluice_load_options& o) { o.preload = -1; }),
      wrong_load("time_breakdown", [](sluice_load_options& o) { o.time_breakdown = 2; }),
      wrong_load("kernels", [](sluice_load_options& o) { o.kernels = "abacus"; }),
      wrong_load("kv_type", [](sluice_load_options& o) { o.kv_type = "q3_1"; }),
      wrong_load("draft_max", [](sluice_load_options& o) { o.draft_max = 32; }),
      wrong_load("kv_policy", [](sluice_load_options& o) { o.kv_policy = "forget"; }),
      wrong_load("kv_sinks", [](sluice_load_options& o) { o.kv_sinks = -2; }),
      wrong_load("kv_sinks without a window", [](sluice_load_options& o) { o.kv_sinks = 4; }),
      wrong_load("kv_capacity",
                 [](sluice_load_options& o) {
                   o.kv_policy = "window";
                   o.kv_capacity = 1;
                 }),
      wrong_load("null headers", [](sluice_load_options& o) { o.n_headers = 1; }),
      wrong_load("a header without a name",
                 [](sluice_load_options& o) {
                   static const char* const header = "a value";
                   o.headers = &header;
                   o.n_headers = 1;
                 }),
      wrong_load("token", [](sluice_load_options& o) { o.token = "two words"; }),
      wrong_load("hf_endpoint", [](sluice_load_options& o) { o.hf_endpoint = "hub"; }),
      wrong_load("null adapters", [](sluice_load_options& o) { o.n_adapters = 1; }),
      wrong_load("adapter without a path",
                 [](sluice_load_options& o) {
                   static const sluice_adapter nameless = {nullptr, 1};
                   o.adapters = &nameless;
                   o.n_adapters = 1;
                 }),
      wrong_load("an adapter's scale",
                 [](sluice_load_options& o) {
                   static const sluice_adapter adapter = {"x.gguf", NAN};
                   o.adapters = &adapter;
                   o.n_adapters = 1;
                 }),
      {"sluice_load", "no such adapter",
       with(
           sluice_load_options_default,
           [](sluice_load_options& o) {
             static const sluice_adapter adapter = {"/nowhere/x.gguf", 1};
             o.adapters = &adapter;
             o.n_adapters = 1;
           },
           [](Rig& r, const sluice_load_options& o) {
             return sluice_load(kSample.c_str(), &o, &r.made_engine);
           }),
       SLUICE_NOT_FOUND},
      {"sluice_load", "no such draft",
       with(
           sluice_load_options_default, [](sluice_load_options& o) { o.draft = "/nowhere/x.gguf"; },
           [](Rig& r, const sluice_load_options& o) {
             return sluice_load(kSample.c_str(), &o, &r.made_engine);
           }),
       SLUICE_NOT_FOUND},
      {"sluice_load", "budget",
       with(
           sluice_load_options_default, [](sluice_load_options& o) { o.memory_budget = 1; },
           [](Rig& r, const sluice_load_options& o) {
             return sluice_load(kSample.c_str(), &o, &r.made_engine);
           }),
       SLUICE_BUDGET_TOO_SMALL},
      {"sluice_load_reader", "null",
       [](Rig& r) { return sluice_load_reader(nullptr, nullptr, &r.made_engine); }},
      {"sluice_load_reader", "null result",
       [](Rig&) {
         sluice_reader reader = {sizeof reader, 100, read_nothing, nullptr, 0};
         return sluice_load_reader(&reader, nullptr, nullptr);
       }},
      {"sluice_load_reader", "size",
       [](Rig& r) { return load_reader(r, [](sluice_reader& o) { o.size = 0; }); }},
      {"sluice_load_reader", "null function",
       [](Rig& r) { return load_reader(r, [](sluice_reader& o) { o.read = nullptr; }); }},
      {"sluice_load_reader", "serialize_reads",
       [](Rig& r) { return load_reader(r, [](sluice_reader& o) { o.serialize_reads = 9; }); }},
      {"sluice_load_reader", "no bytes",
       [](Rig& r) { return load_reader(r, [](sluice_reader& o) { o.length = 0; }); },
       SLUICE_TRUNCATED},
      {"sluice_load_reader", "failing",
       [](Rig& r) { return load_reader(r, [](sluice_reader&) {}); }, SLUICE_IO},
      {"sluice_engine_free", "null",
       [](Rig&) {
         sluice_engine_free(nullptr);
         return SLUICE_OK;
       },
       SLUICE_OK},
      {"sluice_inspect", "null path",
       [](Rig&) {
         return sluice_inspect(
             nullptr, nullptr, [](void*, const char*, const char*, const char*) {}, nullptr);
       }},
      {"sluice_inspect", "null callback",
       [](Rig&) { return sluice_inspect(kSample.c_str(), nullptr, nullptr, nullptr); }},
  };
}

std::vector<Misuse> wrong_questions() {
  return {
      {"sluice_engine_info", "null engine",
       [](Rig&) {
         sluice_info info = {};
         info.size = sizeof info;
         return sluice_engine_info(nullptr, &info);
       }},
      {"sluice_engine_info", "null result",
       [](Rig& r) { return sluice_engine_info(r.engine.get(), nullptr); }},
      {"sluice_engine_info", "size",
       [](Rig& r) {
         sluice_info info = {};
         return sluice_engine_info(r.engine.get(), &info);
       }},
      {"sluice_engine_stats", "null engine",
       [](Rig&) {
         sluice_stats stats = {};
         stats.size = sizeof stats;
         return sluice_engine_stats(nullptr, &stats);
       }},
      {"sluice_engine_stats", "null result",
       [](Rig& r) { return sluice_engine_stats(r.engine.get(), nullptr); }},
      {"sluice_engine_stats", "size",
       [](Rig& r) {
         sluice_stats stats = {};
         stats.size = 8;
         return sluice_engine_stats(r.engine.get(), &stats);
       }},
      {"sluice_engine_memory", "null engine",
       [](Rig&) {
         return sluice_engine_memory(
             nullptr, [](void*, const char*, uint64_t) {}, nullptr);
       }},
      {"sluice_engine_memory", "null callback",
       [](Rig& r) { return sluice_engine_memory(r.engine.get(), nullptr, nullptr); }},
      {"sluice_engine_set_memory_budget", "null",
       [](Rig&) { return sluice_engine_set_memory_budget(nullptr, 0); }},
      {"sluice_engine_set_memory_budget", "one byte",
       [](Rig& r) { return sluice_engine_set_memory_budget(r.engine.get(), 1); },
       SLUICE_BUDGET_TOO_SMALL},
  };
}

std::vector<Misuse> wrong_texts() {
  const auto tokenize = [](const char* text, size_t length, uint32_t flags, size_t capacity) {
    return [=](Rig& r) {
      return sluice_tokenize(r.engine.get(), text, length, flags, r.tokens.data(), capacity,
                             &r.count);
    };
  };
  const auto detokenize = [](int32_t token, int32_t skip_special_tokens, size_t capacity) {
    return [=](Rig& r) {
      return sluice_detokenize(r.engine.get(), &token, 1, skip_special_tokens, r.text.data(),
                               capacity, &r.count);
    };
  };
  return {
      {"sluice_tokenize", "null engine",
       [](Rig& r) { return sluice_tokenize(nullptr, "a", 1, 0, nullptr, 0, &r.count); }},
      {"sluice_tokenize", "null text", tokenize(nullptr, 1, 0, 64)},
      {"sluice_tokenize", "null text with a terminator",
       tokenize(nullptr, SLUICE_TERMINATED, 0, 64)},
      {"sluice_tokenize", "null count",
       [](Rig& r) {
         return sluice_tokenize(r.engine.get(), "a", 1, 0, r.tokens.data(), 64, nullptr);
       }},
      {"sluice_tokenize", "null buffer",
       [](Rig& r) { return sluice_tokenize(r.engine.get(), "a", 1, 0, nullptr, 64, &r.count); }},
      {"sluice_tokenize", "small buffer", tokenize("a longer text", 13, SLUICE_ADD_SPECIAL, 1)},
      {"sluice_tokenize", "flags", tokenize("a", 1, 1u << 31, 64)},
      {"sluice_tokenize", "no text", tokenize(nullptr, 0, 0, 64), SLUICE_OK},
      {"sluice_tokenize", "not UTF-8", tokenize("\xff\xfe\x80", 3, 0, 64), SLUICE_OK},
      {"sluice_detokenize", "null engine",
       [](Rig& r) {
         return sluice_detokenize(nullptr, r.tokens.data(), 1, 0, nullptr, 0, &r.count);
       }},
      {"sluice_detokenize", "null tokens",
       [](Rig& r) {
         return sluice_detokenize(r.engine.get(), nullptr, 1, 0, nullptr, 0, &r.count);
       }},
      {"sluice_detokenize", "null buffer",
       [](Rig& r) {
         return sluice_detokenize(r.engine.get(), r.tokens.data(), 1, 0, nullptr, 9, &r.count);
       }},
      {"sluice_detokenize", "null count",
       [](Rig& r) {
         return sluice_detokenize(r.engine.get(), r.tokens.data(), 1, 0, nullptr, 0, nullptr);
       }},
      {"sluice_detokenize", "negative token", detokenize(-1, 0, 64)},
      {"sluice_detokenize", "token beyond the vocabulary", detokenize(1 << 30, 0, 64)},
      {"sluice_detokenize", "skip_special_tokens", detokenize(1, 2, 64)},
      {"sluice_token_is_eog", "null engine",
       [](Rig& r) { return sluice_token_is_eog(nullptr, 0, &r.number); }},
      {"sluice_token_is_eog", "null result",
       [](Rig& r) { return sluice_token_is_eog(r.engine.get(), 0, nullptr); }},
      {"sluice_token_is_eog", "token",
       [](Rig& r) { return sluice_token_is_eog(r.engine.get(), -7, &r.number); }},
  };
}

}  // namespace sluice::test

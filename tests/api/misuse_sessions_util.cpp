// Wrong calls on sessions: generation, single steps, embeddings.
#include <limits>

#include "misuse.h"

namespace sluice::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Misuse wrong_sampling(const char* what, void (*change)(sluice_sampling&)) {
  return {"sluice_sampler_create", what,
          with(sluice_sampling_default, change, [](Rig& r, const sluice_sampling& s) {
            return sluice_sampler_create(r.engine.get(), &s, &r.made_sampler);
          })};
}

Misuse wrong_answer(const char* what, void (*change)(sluice_generate_options&)) {
  return {
      "sluice_generate", what,
      with(sluice_generate_options_default, change, [](Rig& r, const sluice_generate_options& o) {
        return sluice_generate(r.session.get(), kPrompt, SLUICE_TERMINATED, &o, nullptr);
      })};
}

Misuse wrong_embedding(const char* what, void (*change)(sluice_embed_options&)) {
  return {"sluice_embed", what,
          with(sluice_embed_options_default, change, [](Rig& r, const sluice_embed_options& o) {
            const char* const text = "a text";
            return sluice_embed(r.session.get(), &text, 1, &o, r.floats.data(), r.floats.size(),
                                &r.count);
          })};
}

}  // namespace

std::vector<Misuse> wrong_sessions() {
  return {
      {"sluice_session_create", "null engine",
       [](Rig& r) { return sluice_session_create(nullptr, &r.made_session); }},
      {"sluice_session_create", "null result",
       [](Rig& r) { return sluice_session_create(r.engine.get(), nullptr); }},
      {"sluice_session_create", "one too many",
       [](Rig& r) {
         const Session second = create(r.engine);
         return sluice_session_create(r.engine.get(), &r.made_session);
       }},
      {"sluice_session_fork", "null",
       [](Rig& r) { return sluice_session_fork(nullptr, &r.made_session); }},
      {"sluice_session_fork", "null result",
       [](Rig& r) { return sluice_session_fork(r.session.get(), nullptr); }},
      {"sluice_session_fork", "one too many",
       [](Rig& r) {
         const Session second = create(r.engine);
         return sluice_session_fork(r.session.get(), &r.made_session);
       }},
      {"sluice_session_free", "null", [](Rig&) { return sluice_session_free(nullptr); }, SLUICE_OK},
      {"sluice_session_tokens", "null",
       [](Rig& r) { return sluice_session_tokens(nullptr, nullptr, 0, &r.count); }},
      {"sluice_session_tokens", "null count",
       [](Rig& r) { return sluice_session_tokens(r.session.get(), nullptr, 0, nullptr); }},
      {"sluice_session_tokens", "null buffer",
       [](Rig& r) { return sluice_session_tokens(r.session.get(), nullptr, 4, &r.count); }},
      {"sluice_session_rewind", "null",
       [](Rig& r) { return sluice_session_rewind(nullptr, 0, &r.number); }},
      {"sluice_session_rewind", "negative",
       [](Rig& r) { return sluice_session_rewind(r.session.get(), -1, &r.number); }},
      {"sluice_session_rewind", "forward",
       [](Rig& r) { return sluice_session_rewind(r.session.get(), 1000, &r.number); }},
      {"sluice_session_state_bytes", "null",
       [](Rig& r) { return sluice_session_state_bytes(nullptr, &r.bytes); }},
      {"sluice_session_state_bytes", "null result",
       [](Rig& r) { return sluice_session_state_bytes(r.session.get(), nullptr); }},
      {"sluice_session_save", "null",
       [](Rig& r) { return sluice_session_save(nullptr, 0, r.text.data(), 1); }},
      {"sluice_session_save", "null buffer",
       [](Rig& r) { return sluice_session_save(r.session.get(), 0, nullptr, 1); }},
      {"sluice_session_save", "beyond",
       [](Rig& r) { return sluice_session_save(r.session.get(), UINT64_MAX, r.text.data(), 1); }},
      {"sluice_session_restore", "null",
       [](Rig& r) { return sluice_session_restore(nullptr, r.text.data(), 64); }},
      {"sluice_session_restore", "null data",
       [](Rig& r) { return sluice_session_restore(r.session.get(), nullptr, 64); }},
      {"sluice_session_restore", "not a saved state",
       [](Rig& r) { return sluice_session_restore(r.session.get(), r.text.data(), 64); },
       SLUICE_CORRUPT},
      {"sluice_session_restore", "empty",
       [](Rig& r) { return sluice_session_restore(r.session.get(), nullptr, 0); }, SLUICE_CORRUPT},
      {"sluice_session_cancel", "null", [](Rig&) { return sluice_session_cancel(nullptr); }},
      {"sluice_session_cancel", "nothing to cancel",
       [](Rig& r) { return sluice_session_cancel(r.session.get()); }, SLUICE_OK},
  };
}

std::vector<Misuse> wrong_answers() {
  return {
      {"sluice_generate_options_default", "null",
       [](Rig&) { return sluice_generate_options_default(nullptr, 8); }},
      {"sluice_generate_options_default", "no size",
       [](Rig&) {
         sluice_generate_options o;
         return sluice_generate_options_default(&o, 0);
       }},
      {"sluice_generate", "null",
       [](Rig&) { return sluice_generate(nullptr, "a", 1, nullptr, nullptr); }},
      {"sluice_generate", "null prompt",
       [](Rig& r) {
         return sluice_generate(r.session.get(), nullptr, SLUICE_TERMINATED, nullptr, nullptr);
       }},
      {"sluice_generate", "result's size",
       [](Rig& r) {
         sluice_result result = {};
         return sluice_generate(r.session.get(), "a", 1, nullptr, &result);
       }},
      {"sluice_generate", "too long",
       [](Rig& r) {
         const std::string text(4000, 'x');
         return sluice_generate(r.session.get(), text.data(), text.size(), nullptr, nullptr);
       },
       SLUICE_PROMPT_TOO_LONG},
      wrong_answer("size", [](sluice_generate_options& o) { o.size = 1; }),
      wrong_answer("max_tokens", [](sluice_generate_options& o) { o.max_tokens = -2; }),
      wrong_answer("prompt_flags", [](sluice_generate_options& o) { o.prompt_flags = 16; }),
      wrong_answer("skip_special_tokens",
                   [](sluice_generate_options& o) { o.skip_special_tokens = 5; }),
      wrong_answer("ignore_eos", [](sluice_generate_options& o) { o.ignore_eos = -1; }),
      wrong_answer("logprobs", [](sluice_generate_options& o) { o.logprobs = 65; }),
      wrong_answer("null stop", [](sluice_generate_options& o) { o.n_stop = 1; }),
      wrong_answer("null stop string",
                   [](sluice_generate_options& o) {
                     static const char* const stops[] = {nullptr};
                     o.stop = stops;
                     o.n_stop = 1;
                   }),
      wrong_answer("null stop tokens", [](sluice_generate_options& o) { o.n_stop_tokens = 1; }),
      wrong_answer("unknown stop token",
                   [](sluice_generate_options& o) {
                     static const int32_t stops[] = {-1};
                     o.stop_tokens = stops;
                     o.n_stop_tokens = 1;
                   }),
      wrong_answer("many stop tokens",
                   [](sluice_generate_options& o) {
                     static const std::vector<int32_t> stops(65, 5);
                     o.stop_tokens = stops.data();
                     o.n_stop_tokens = SIZE_MAX;
                   }),
      wrong_answer("many stops",
                   [](sluice_generate_options& o) {
                     static const std::vector<const char*> stops(65, "x");
                     o.stop = stops.data();
                     o.n_stop = SIZE_MAX;
                   }),
      wrong_answer("constraint", [](sluice_generate_options& o) { o.constraint = 6; }),
      wrong_answer("constraint without text",
                   [](sluice_generate_options& o) { o.constraint = SLUICE_CONSTRAINT_GBNF; }),
      wrong_answer("whitespace", [](sluice_generate_options& o) { o.whitespace = 3; }),
      wrong_answer("sampling's size",
                   [](sluice_generate_options& o) {
                     static const sluice_sampling nothing = {};
                     o.sampling = &nothing;
                   }),
      {"sluice_generate_tokens", "null",
       [](Rig& r) {
         return sluice_generate_tokens(nullptr, r.tokens.data(), 1, nullptr, nullptr);
       }},
      {"sluice_generate_tokens", "null prompt",
       [](Rig& r) {
         return sluice_generate_tokens(r.session.get(), nullptr, 3, nullptr, nullptr);
       }},
      {"sluice_generate_tokens", "no prompt",
       [](Rig& r) { return sluice_generate_tokens(r.session.get(), nullptr, 0, nullptr, nullptr); },
       SLUICE_PROMPT_EMPTY},
      {"sluice_generate_tokens", "token",
       [](Rig& r) {
         const int32_t token = INT32_MIN;
         return sluice_generate_tokens(r.session.get(), &token, 1, nullptr, nullptr);
       }},
  };
}

std::vector<Misuse> wrong_steps() {
  return {
      {"sluice_forward", "null",
       [](Rig& r) { return sluice_forward(nullptr, r.tokens.data(), 1, SLUICE_LAST_LOGITS); }},
      {"sluice_forward", "null tokens",
       [](Rig& r) { return sluice_forward(r.session.get(), nullptr, 1, SLUICE_LAST_LOGITS); }},
      {"sluice_forward", "no tokens",
       [](Rig& r) { return sluice_forward(r.session.get(), nullptr, 0, SLUICE_LAST_LOGITS); },
       SLUICE_PROMPT_EMPTY},
      {"sluice_forward", "token",
       [](Rig& r) {
         const int32_t token = 1 << 29;
         return sluice_forward(r.session.get(), &token, 1, SLUICE_LAST_LOGITS);
       }},
      {"sluice_forward", "token of a picture",
       [](Rig& r) {
         const int32_t token = 1 << 30;
         return sluice_forward(r.session.get(), &token, 1, SLUICE_LAST_LOGITS);
       },
       SLUICE_MEDIA_MISSING},
      {"sluice_forward", "logits_mode",
       [](Rig& r) { return sluice_forward(r.session.get(), r.tokens.data(), 1, 2); }},
      {"sluice_forward", "too many rows",
       [](Rig& r) {
         return sluice_forward(r.session.get(), r.tokens.data(), 9, SLUICE_ALL_LOGITS);
       }},
      {"sluice_logits", "null",
       [](Rig& r) { return sluice_logits(nullptr, 0, nullptr, 0, &r.count); }},
      {"sluice_logits", "null count",
       [](Rig& r) { return sluice_logits(r.session.get(), 0, nullptr, 0, nullptr); }},
      {"sluice_logits", "nothing computed",
       [](Rig& r) { return sluice_logits(r.session.get(), 0, nullptr, 0, &r.count); }},
      {"sluice_logits", "row",
       [](Rig& r) {
         expect_ok(sluice_forward(r.session.get(), r.tokens.data(), 2, SLUICE_ALL_LOGITS));
         return sluice_logits(r.session.get(), 2, nullptr, 0, &r.count);
       }},
      {"sluice_logits", "small buffer",
       [](Rig& r) {
         expect_ok(sluice_forward(r.session.get(), r.tokens.data(), 1, SLUICE_LAST_LOGITS));
         return sluice_logits(r.session.get(), 0, r.floats.data(), 3, &r.count);
       }},
      {"sluice_logits", "late",
       [](Rig& r) {
         expect_ok(sluice_forward(r.session.get(), r.tokens.data(), 1, SLUICE_LAST_LOGITS));
         const Session other = create(r.engine);
         expect_ok(sluice_forward(other.get(), r.tokens.data(), 1, SLUICE_LAST_LOGITS));
         return sluice_logits(r.session.get(), 0, nullptr, 0, &r.count);
       }},
      {"sluice_logits", "after another budget",
       [](Rig& r) {
         expect_ok(sluice_forward(r.session.get(), r.tokens.data(), 1, SLUICE_LAST_LOGITS));
         expect_ok(sluice_engine_set_memory_budget(r.engine.get(), 64 << 20));
         return sluice_logits(r.session.get(), 0, nullptr, 0, &r.count);
       }},
      {"sluice_sampling_default", "null",
       [](Rig&) { return sluice_sampling_default(nullptr, sizeof(sluice_sampling)); }},
      {"sluice_sampler_create", "null",
       [](Rig& r) { return sluice_sampler_create(nullptr, nullptr, &r.made_sampler); }},
      {"sluice_sampler_create", "null result",
       [](Rig& r) { return sluice_sampler_create(r.engine.get(), nullptr, nullptr); }},
      wrong_sampling("size", [](sluice_sampling& s) { s.size = 12; }),
      wrong_sampling("temperature", [](sluice_sampling& s) { s.temperature = kNan; }),
      wrong_sampling("top_k", [](sluice_sampling& s) { s.top_k = -1; }),
      wrong_sampling("top_p", [](sluice_sampling& s) { s.top_p = 1.5f; }),
      wrong_sampling("min_p", [](sluice_sampling& s) { s.min_p = -1; }),
      wrong_sampling("repeat_penalty", [](sluice_sampling& s) { s.repeat_penalty = 0; }),
      wrong_sampling("penalty_last_n", [](sluice_sampling& s) { s.penalty_last_n = -2; }),
      wrong_sampling("null biases", [](sluice_sampling& s) { s.n_logit_bias = 1; }),
      wrong_sampling("many biases",
                     [](sluice_sampling& s) {
                       static const sluice_logit_bias bias = {1, 1};
                       s.logit_bias = &bias;
                       s.n_logit_bias = SIZE_MAX;
                     }),
      {"sluice_sampler_free", "null",
       [](Rig&) {
         sluice_sampler_free(nullptr);
         return SLUICE_OK;
       },
       SLUICE_OK},
      {"sluice_sampler_sample", "null",
       [](Rig& r) {
         return sluice_sampler_sample(nullptr, r.floats.data(), 1, nullptr, 0, &r.number);
       }},
      {"sluice_sampler_sample", "null logits",
       [](Rig& r) {
         return sluice_sampler_sample(r.sampler.get(), nullptr, 1, nullptr, 0, &r.number);
       }},
      {"sluice_sampler_sample", "count",
       [](Rig& r) {
         return sluice_sampler_sample(r.sampler.get(), r.floats.data(), 3, nullptr, 0, &r.number);
       }},
      {"sluice_sampler_sample", "null history",
       [](Rig& r) {
         return sluice_sampler_sample(r.sampler.get(), r.floats.data(), 1, nullptr, 2, &r.number);
       }},
      {"sluice_sampler_sample", "null result",
       [](Rig& r) {
         return sluice_sampler_sample(r.sampler.get(), r.floats.data(), 1, nullptr, 0, nullptr);
       }},
  };
}

std::vector<Misuse> wrong_embeddings() {
  return {
      {"sluice_embed_options_default", "null",
       [](Rig&) { return sluice_embed_options_default(nullptr, sizeof(sluice_embed_options)); }},
      {"sluice_embed", "null",
       [](Rig& r) { return sluice_embed(nullptr, nullptr, 0, nullptr, nullptr, 0, &r.count); }},
      {"sluice_embed", "null texts",
       [](Rig& r) {
         return sluice_embed(r.session.get(), nullptr, 1, nullptr, nullptr, 0, &r.count);
       }},
      {"sluice_embed", "null string",
       [](Rig& r) {
         const char* const text = nullptr;
         return sluice_embed(r.session.get(), &text, 1, nullptr, nullptr, 0, &r.count);
       }},
      {"sluice_embed", "null count",
       [](Rig& r) {
         return sluice_embed(r.session.get(), nullptr, 0, nullptr, nullptr, 0, nullptr);
       }},
      {"sluice_embed", "null buffer",
       [](Rig& r) {
         return sluice_embed(r.session.get(), nullptr, 0, nullptr, nullptr, 5, &r.count);
       }},
      {"sluice_embed", "small buffer",
       [](Rig& r) {
         const char* const text = "a text";
         return sluice_embed(r.session.get(), &text, 1, nullptr, r.floats.data(), 2, &r.count);
       }},
      wrong_embedding("size", [](sluice_embed_options& o) { o.size = 0; }),
      wrong_embedding("pooling", [](sluice_embed_options& o) { o.pooling = 5; }),
      wrong_embedding("no reranker",
                      [](sluice_embed_options& o) { o.pooling = SLUICE_POOLING_RANK; }),
      wrong_embedding("normalize", [](sluice_embed_options& o) { o.normalize = 7; }),
      wrong_embedding("dimensions", [](sluice_embed_options& o) { o.dimensions = 1 << 20; }),
      wrong_embedding("query", [](sluice_embed_options& o) { o.query = "without a ranking"; }),
  };
}

}  // namespace sluice::test

// KV cache eviction by sliding window. A query sees what it would see if the text consisted of its
// first and last positions; this is compared with just that text on a one-layer model, where keys
// do not depend on earlier tokens. Nothing changes until something is evicted. No bit depends on
// budget, threads, batch length, rewinding, saving or restoring. Thousands of tokens through a
// small cache allocate nothing and stay sane.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>

#include "../sanitized.h"
#include "fixtures_util.h"
#include "one_layer_util.h"

namespace sluice::test {
namespace {

using Tokens = std::vector<int32_t>;

constexpr int32_t kContext = 256, kKeep = 4;
constexpr int32_t kSeen = kContext - kv::KvPolicy::spare(kContext);

Tokens random_tokens(size_t n, int64_t n_vocab) {
  Tokens out;
  uint32_t state = 7;
  while (out.size() < n) {
    state = state * 1664525 + 1013904223;
    out.push_back(static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(n_vocab)));
  }
  return out;
}

session::EngineOptions window_options(const std::string& type = "f16", int32_t sinks = kKeep) {
  session::EngineOptions options;
  options.n_threads = 2;
  options.kv = *kv::parse_kv_types(type);
  options.kv_policy.window = true;
  options.kv_policy.sinks = sinks;
  options.kv_policy.capacity = kContext;
  options.n_ctx = 8192;
  return options;
}

struct Model {
  std::string name, path;
};

std::vector<Model> models(const std::vector<std::string>& names) {
  std::vector<Model> out;
  for (const std::string& name : names) {
    const std::string path = fixture_path("arch", name + ".gguf");
    if (!path.empty()) out.push_back({name, path});
  }
  return out;
}

TEST(KvPolicyTest, EvictedPositionsHaveNoEffect) {
  const auto all = models({"llama-gqa", "llama-rope-yarn", "llama3-ropefreqs", "phi2",
                           "phi3-longrope-partial", "qwen3"});
  ASSERT_FALSE(all.empty());
  for (const Model& m : all) {
    const std::string path = one_layer(m.path);
    const int64_t n_vocab = 100;
    const Tokens text = random_tokens(900, n_vocab);
    for (const char* type : {"f16", "q8_0", "q4_0"}) {
      if (kSanitized && type[0] == 'q') continue;
      Opened opened = open_model(path, window_options(type));
      session::EngineOptions plain = window_options();
      plain.kv_policy = {};
      plain.n_ctx = kContext;  // the same number: RoPE factors depend on it
      Opened full = open_model(path, plain);
      plain.n_ctx = 1024;
      Opened whole = open_model(path, plain);
      plain.n_ctx = kContext;
      plain.kv = *kv::parse_kv_types(type);
      Opened rounded = open_model(path, plain);  // the error of the type alone
      ASSERT_NE(opened.session, nullptr);
      double worst = 0, apart = 0, cost = 0;
      for (const size_t n : {230, 260, 511, 512, 513, 900}) {
        const Tokens all_of_it(text.begin(), text.begin() + static_cast<ptrdiff_t>(n));
        Tokens seen(text.begin(), text.begin() + kKeep);
        seen.insert(seen.end(), all_of_it.end() - (kSeen - kKeep), all_of_it.end());
        const std::vector<float> ours = logits_after(opened, all_of_it);
        const std::vector<float> theirs = logits_after(full, seen);
        worst = std::max(worst, nmse(ours.data(), theirs.data(), ours.size()));
        const std::vector<float> stored = logits_after(rounded, seen);
        cost = std::max(cost, nmse(stored.data(), theirs.data(), ours.size()));
        const std::vector<float> unforgotten = logits_after(whole, all_of_it);
        apart = std::max(apart, nmse(unforgotten.data(), theirs.data(), ours.size()));
      }
      std::printf("%-22s %-5s NMSE %.2g, compared with the whole text %.2g\n", m.name.c_str(), type,
                  worst, apart);
      EXPECT_LT(worst, 1e-5 + 3 * cost) << m.name << " " << type;
      EXPECT_LT(10 * worst, apart) << m.name << " " << type;
    }
    std::remove(path.c_str());
  }
}

// gemma2 and gemma3 have layers with sliding windows of their own.
TEST(KvPolicyTest, NoBitDependsOnAnythingElse) {
  const auto all = models({"llama-gqa", "gemma2", "phi2"});
  ASSERT_FALSE(all.empty());
  for (const Model& m : all) {
    for (const char* type : {"f16", "q8_0", "q4_0", "q2"}) {
      if (kSanitized && std::strcmp(type, "q4_0") != 0) continue;
      session::EngineOptions options = window_options(type);
      options.logits_rows = 20;
      options.n_ctx = 1200;
      const Tokens text = random_tokens(kSanitized ? 300 : 700, 100);
      const auto logits = [&](const session::EngineOptions& with, size_t n, size_t step) {
        Opened opened = open_model(m.path, with);
        return opened.session == nullptr
                   ? std::vector<float>()
                   : all_logits(opened, {text.begin(), text.begin() + static_cast<ptrdiff_t>(n)},
                                step);
      };
      const std::vector<float> expected = logits(options, text.size(), 20);
      ASSERT_FALSE(expected.empty());
      session::EngineOptions full = options;
      full.kv_policy = {};
      full.n_ctx = kContext;
      const std::vector<float> begun = logits(full, kSeen, 20);
      ASSERT_FALSE(begun.empty());
      ASSERT_LT(begun.size(), expected.size());
      EXPECT_EQ(std::memcmp(begun.data(), expected.data(), begun.size() * sizeof(float)), 0)
          << m.name << " " << type << ": before any eviction";
      options.n_threads = 1;
      EXPECT_EQ(logits(options, text.size(), 7), expected) << m.name << " " << type << ": 7 a pass";
      options.logits_rows = 1;
      options.memory_budget = smallest_budget(m.path, options);
      EXPECT_EQ(logits(options, text.size(), 1), expected) << m.name << " " << type << ": 1 a pass";
    }
  }
}

TEST(KvPolicyTest, RewindingAndRestoringChangeNoBit) {
  const auto all = models({"llama-gqa", "gemma2"});
  ASSERT_FALSE(all.empty());
  for (const Model& m : all) {
    for (const char* type : {"f16", "q4_0"}) {
      Opened fresh = open_model(m.path, window_options(type));
      Opened opened = open_model(m.path, window_options(type));
      ASSERT_NE(opened.session, nullptr);
      Tokens text = random_tokens(kSanitized ? 400 : 1500, 100);
      logits_after(opened, text);
      const size_t length = text.size();
      for (const size_t back : {5, 30, 200, 600, 1}) {
        text.resize(length - std::min<size_t>(back, length / 2));
        text.push_back(static_cast<int32_t>(back % 90));
        const std::vector<float> ours = logits_after(opened, text);
        fresh.session->clear();
        EXPECT_EQ(ours, logits_after(fresh, text)) << m.name << " " << type << " " << back;
        std::vector<uint8_t> saved(opened.session->sequence().state_bytes());
        ASSERT_TRUE(opened.session->read_state(0, saved).ok());
        ASSERT_TRUE(fresh.session->begin_restore(saved.size()).ok());
        ASSERT_TRUE(fresh.session->write_state(saved).ok());
        for (const int32_t token : random_tokens(40, 90)) text.push_back(token);
        EXPECT_EQ(logits_after(fresh, text), logits_after(opened, text)) << m.name << " " << type;
        text.resize(length, 3);
      }
      session::EngineOptions other = window_options(type, kKeep + 1);
      Opened foreign = open_model(m.path, other);
      std::vector<uint8_t> saved(opened.session->sequence().state_bytes());
      ASSERT_TRUE(opened.session->read_state(0, saved).ok());
      ASSERT_TRUE(foreign.session->begin_restore(saved.size()).ok());
      EXPECT_EQ(foreign.session->write_state(saved).code(), Code::kCorrupt);
    }
  }
}

TEST(KvPolicyTest, UnsupportedModelsAreErrorsThatNameTheReason) {
  const std::pair<const char*, const char*> expected[] = {{"gpt2", "position embeddings"}};
  for (const auto& [name, why] : expected) {
    const auto all = models({name});
    ASSERT_FALSE(all.empty()) << name;
    auto header = native::read_header(all[0].path, {});
    ASSERT_TRUE(header.ok());
    session::EngineOptions options;
    options.kv_policy.window = true;
    const auto found = session::inspect(header->header, options);
    EXPECT_EQ(found.status().code(), Code::kInvalidArgument);
    EXPECT_NE(found.status().message().find(why), std::string::npos) << found.status().message();
  }
}

// The sample model generates stories through a cache of 256 positions. Each text is then scored by
// the model with its full context. Also without sinks, for comparison.
TEST(KvPolicyTest, ALongTextContinuesInTheSameMemory) {
  const std::string path = sample_model();
  const size_t length = kSanitized ? 600 : 3000;
  for (const int32_t sinks : {kKeep, 0}) {
    session::EngineOptions options = window_options("f16", sinks);
    options.n_ctx = 0;
    options.n_threads = 1;
    Opened opened = open_model(path, options), judge = open_model(path, session::EngineOptions{});
    ASSERT_NE(opened.session, nullptr);
    const session::MemoryPlan plan = opened.model->engine().plan();
    Tokens text = opened.model->engine().tokenizer().encode("Once", {});
    uint32_t random = 3;
    while (text.size() < length) {
      const std::vector<float> logits = logits_after(opened, text);
      // Samples one of the likely tokens, so that the text does not loop.
      double sum = 0, least = 1;
      random = random * 1664525 + 1013904223;
      const double at = (random >> 8) * 0x1p-24;
      const float top = *std::max_element(logits.begin(), logits.end());
      for (const float x : logits) sum += std::exp(static_cast<double>(x - top));
      int32_t chosen = 0;
      least = 0;
      for (size_t i = 0; i < logits.size() && least <= at; ++i) {
        least += std::exp(static_cast<double>(logits[i] - top)) / sum;
        chosen = static_cast<int32_t>(i);
      }
      text.push_back(chosen);
    }
    EXPECT_EQ(opened.model->engine().plan().total(), plan.total());
    EXPECT_EQ(opened.session->position(), static_cast<int32_t>(length) - 1);
    // The last 200 tokens, scored after as many before them.
    const Tokens last(text.end() - 400, text.end());
    double nats = 0;
    for (size_t i = 200; i < last.size(); ++i) {
      const auto logits =
          logits_after(judge, {last.begin(), last.begin() + static_cast<ptrdiff_t>(i)});
      double sum = 0;
      for (const float x : logits) sum += std::exp(static_cast<double>(x));
      nats += std::log(sum) - static_cast<double>(logits[static_cast<size_t>(last[i])]);
    }
    const double perplexity = std::exp(nats / 200);
    std::printf("%zu tokens through %d positions, %d sinks: perplexity %.2f\n", length, kContext,
                sinks, perplexity);
    EXPECT_LT(perplexity, 4);
  }
}

}  // namespace
}  // namespace sluice::test

// Load options that add to a model: adapters, quantized KV caches, and drafts.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <utility>

#include "../paths.h"
#include "api_util.h"

namespace sluice::test {
namespace {

// The last logits of a prompt of 48 tokens, as a reference computed them in double precision.
TEST(ApiLoading, AppliesAdaptersWithTheirScales) {
  const std::string fixtures = shared_dir() + "/fixtures/";
  const std::string adapter = fixtures + "lora/llama.a.lora.gguf";
  if (!std::filesystem::exists(adapter)) GTEST_SKIP() << "no shared fixtures";
  constexpr int32_t kPrompt[] = {1,   88,  68,  244, 67,  48, 142, 237, 225, 152, 35,  23,
                                 215, 214, 228, 95,  223, 22, 63,  19,  199, 234, 102, 60,
                                 200, 223, 120, 60,  163, 92, 258, 192, 202, 250, 264, 209,
                                 209, 146, 168, 83,  181, 87, 25,  174, 83,  218, 196, 125};
  constexpr size_t kVocabulary = 512;
  for (const auto& [scale, name] : {std::pair(1.0f, "llama.a1"), std::pair(0.5f, "llama.a05")}) {
    const sluice_adapter adapters[] = {{adapter.c_str(), scale}};
    sluice_load_options options = load_options();
    options.adapters = adapters;
    options.n_adapters = 1;
    const Engine engine = load(options, fixtures + "arch/llama-gqa.gguf");
    const Session session = create(engine);
    expect_ok(sluice_forward(session.get(), kPrompt, std::size(kPrompt), SLUICE_LAST_LOGITS));
    const std::vector<float> logits = logits_of(session);
    ASSERT_EQ(logits.size(), kVocabulary);
    std::vector<float> expected(kVocabulary);
    std::ifstream file(fixtures + "lora/" + name + ".logits.f32", std::ios::binary);
    file.seekg((std::size(kPrompt) - 1) * kVocabulary * sizeof(float));
    ASSERT_TRUE(file.read(reinterpret_cast<char*>(expected.data()), kVocabulary * sizeof(float)));
    double error = 0, power = 0;
    for (size_t i = 0; i < kVocabulary; ++i) {
      error += std::pow(logits[i] - expected[i], 2);
      power += std::pow(expected[i], 2);
    }
    EXPECT_LT(error / power, 1e-4) << name;
  }
}

TEST(ApiLoading, UsesTheRequestedKvCacheTypes) {
  const auto kv_bytes = [](const char* type) {
    sluice_load_options options = load_options();
    options.kv_type = type;
    options.n_ctx = 2048;  // so that f16 copies of a few hundred are a small part
    const Engine engine = load(options);
    uint64_t bytes = 0;
    expect_ok(sluice_engine_memory(
        engine.get(),
        [](void* user, const char* name, uint64_t n) {
          if (std::string(name) == "kv") *static_cast<uint64_t*>(user) = n;
        },
        &bytes));
    return bytes;
  };
  const uint64_t whole = kv_bytes(nullptr);
  EXPECT_GT(whole, 0u);
  EXPECT_EQ(kv_bytes("f16"), whole);
  EXPECT_LT(kv_bytes("q8_0"), whole);
  EXPECT_NE(kv_bytes("q4_0"), kv_bytes("q8_0,q4_0"));
}

struct Told {
  std::string text;
  sluice_result result = {};
};

Told tell(const Engine& engine, const std::string& prompt, float temperature) {
  Told told;
  sluice_sampling sampling;
  expect_ok(sluice_sampling_default(&sampling, sizeof sampling));
  sampling.temperature = temperature;
  sampling.seed = 7;
  sluice_generate_options options;
  expect_ok(sluice_generate_options_default(&options, sizeof options));
  options.sampling = &sampling;
  options.max_tokens = 40;
  options.token_user = &told.text;
  options.on_token = [](void* user, const sluice_token_event* piece) -> int32_t {
    static_cast<std::string*>(user)->append(piece->text, piece->length);
    return 0;
  };
  told.result.size = sizeof told.result;
  const Session session = create(engine);
  expect_ok(sluice_generate(session.get(), prompt.data(), prompt.size(), &options, &told.result));
  return told;
}

uint64_t memory_total(const Engine& engine) {
  sluice_info info = {};
  info.size = sizeof info;
  expect_ok(sluice_engine_info(engine.get(), &info));
  return info.memory_total;
}

uint64_t memory_of(const Engine& engine, const std::string& part) {
  std::pair<std::string, uint64_t> wanted(part, 0);
  expect_ok(sluice_engine_memory(
      engine.get(),
      [](void* user, const char* name, uint64_t bytes) {
        auto& found = *static_cast<std::pair<std::string, uint64_t>*>(user);
        if (found.first == name) found.second = bytes;
      },
      &wanted));
  return wanted.second;
}

// How many draft tokens to verify depends on measured latency, so there may be none.
TEST(ApiLoading, DraftsDoNotChangeTheOutput) {
  const Engine plain = load();
  for (const char* draft : {"ngram", kSample.c_str()}) {
    sluice_load_options options = load_options();
    options.draft = draft;
    options.draft_max = 5;
    const Engine engine = load(options);
    for (const float temperature : {0.0f, 1.0f}) {
      const std::string prompt = "One day a dog saw a cat. One day a dog saw a cat. One day a";
      const Told expected = tell(plain, prompt, temperature);
      const Told told = tell(engine, prompt, temperature);
      EXPECT_EQ(told.text, expected.text) << draft;
      EXPECT_EQ(expected.result.drafted_tokens, 0);
      EXPECT_EQ(told.result.generated_tokens, expected.result.generated_tokens);
      EXPECT_GE(expected.result.forward_passes,
                told.result.forward_passes + told.result.accepted_tokens);
    }
    EXPECT_EQ(memory_of(engine, "draft") > 0, draft == kSample);
    EXPECT_GT(memory_total(engine), memory_total(plain)) << draft;
  }
}

TEST(ApiLoading, ADraftModelStaysWithinTheBudget) {
  const Engine plain = load();
  sluice_load_options options = load_options();
  options.draft = kSample.c_str();
  options.memory_budget = 1;
  sluice_engine* none = nullptr;
  EXPECT_EQ(sluice_load(kSample.c_str(), &options, &none), SLUICE_BUDGET_TOO_SMALL);

  options.memory_budget = 2 * memory_total(plain);
  const Engine engine = load(options);
  EXPECT_LE(memory_total(engine), options.memory_budget);
  sluice_info info = {};
  info.size = sizeof info;
  expect_ok(sluice_engine_info(engine.get(), &info));
  EXPECT_EQ(info.memory_budget, options.memory_budget);
  const std::string before = tell(engine, kPrompt, 0).text;
  EXPECT_EQ(sluice_engine_set_memory_budget(engine.get(), info.memory_minimum - 1),
            SLUICE_BUDGET_TOO_SMALL);
  EXPECT_NE(std::string(sluice_last_error()).find("draft"), std::string::npos);
  const uint64_t less = options.memory_budget - memory_total(plain) / 20;
  expect_ok(sluice_engine_set_memory_budget(engine.get(), less));
  EXPECT_LE(memory_total(engine), less);
  EXPECT_EQ(tell(engine, kPrompt, 0).text, before);
  expect_ok(sluice_engine_set_memory_budget(engine.get(), 0));
  EXPECT_EQ(tell(engine, kPrompt, 0).text, before);
}

TEST(ApiLoading, ContinuesInASmallCacheWithEviction) {
  const std::vector<int32_t> text(300, 5);
  sluice_load_options options = load_options();
  options.n_ctx = 128;
  const Engine full = load(options);
  const Session first = create(full);
  EXPECT_EQ(sluice_forward(first.get(), text.data(), text.size(), SLUICE_LAST_LOGITS),
            SLUICE_PROMPT_TOO_LONG);
  options.n_ctx = 1000;
  options.kv_policy = "window";
  options.kv_sinks = 2;
  options.kv_capacity = 128;
  const Engine engine = load(options);
  const Session session = create(engine);
  expect_ok(sluice_forward(session.get(), text.data(), text.size(), SLUICE_LAST_LOGITS));
  EXPECT_FALSE(logits_of(session).empty());
}

}  // namespace
}  // namespace sluice::test

// Budgets and counts that the C API names: each works, one byte less is refused.
#include <cstdlib>
#include <map>

#include "api_util.h"

namespace sluice::test {
namespace {

sluice_info info_of(const Engine& engine) {
  sluice_info info = {};
  info.size = sizeof info;
  expect_ok(sluice_engine_info(engine.get(), &info));
  return info;
}

// The bytes that the last error calls the smallest budget; 0: none.
uint64_t named_budget() {
  const std::string text = sluice_last_error();
  const size_t at = text.find("smallest that works is ");
  EXPECT_NE(at, std::string::npos) << text;
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at + 23, nullptr, 10);
}

uint64_t smallest_to_load(sluice_load_options options) {
  sluice_engine* none = nullptr;
  options.memory_budget = 1000;
  EXPECT_EQ(sluice_load(kSample.c_str(), &options, &none), SLUICE_BUDGET_TOO_SMALL);
  const uint64_t named = named_budget();
  options.memory_budget = named - 1;
  EXPECT_EQ(sluice_load(kSample.c_str(), &options, &none), SLUICE_BUDGET_TOO_SMALL);
  EXPECT_EQ(named_budget(), named);
  return named;
}

std::vector<std::pair<const char*, sluice_load_options>> option_sets() {
  std::vector<std::pair<const char*, sluice_load_options>> out;
  sluice_load_options o = load_options();
  o.n_ctx = 700;
  o.sessions = o.logits_rows = 1;
  o.structured_output = 0;
  out.emplace_back("plain", o);
  o.logits_rows = 256;
  out.emplace_back("256 rows", o);
  o.draft = kSample.c_str();
  out.emplace_back("256 rows and a draft model", o);
  o.logits_rows = 1;
  o.structured_output = 1;
  o.kv_type = "q8_0";
  out.emplace_back("a draft model, q8_0 and structured output", o);
  o.draft = "ngram";
  o.sessions = 3;
  out.emplace_back("n-grams and three sessions", o);
  o.kv_policy = "window";
  o.kv_capacity = 256;
  out.emplace_back("a window", o);
  return out;
}

TEST(ApiMemoryLimits, EveryNamedBudgetWorks) {
  for (const auto& [name, given] : option_sets()) {
    SCOPED_TRACE(name);
    sluice_load_options options = given;
    const uint64_t least = smallest_to_load(options);
    for (const uint64_t before : {uint64_t{0}, least, least + least / 3}) {
      options.memory_budget = before;
      const Engine engine = load(options);
      ASSERT_NE(engine, nullptr);
      EXPECT_EQ(info_of(engine).memory_minimum, least);
      EXPECT_EQ(sluice_engine_set_memory_budget(engine.get(), 1000), SLUICE_BUDGET_TOO_SMALL);
      const uint64_t named = named_budget();
      EXPECT_EQ(info_of(engine).memory_budget, before);
      EXPECT_EQ(sluice_engine_set_memory_budget(engine.get(), named - 1), SLUICE_BUDGET_TOO_SMALL);
      EXPECT_EQ(named_budget(), named);
      for (uint64_t budget = named; budget < 2 * named; budget += named / 5) {
        expect_ok(sluice_engine_set_memory_budget(engine.get(), budget));
        EXPECT_EQ(info_of(engine).memory_budget, budget);
        EXPECT_LE(info_of(engine).memory_total, budget);
        EXPECT_EQ(info_of(engine).memory_minimum, least);
      }
      expect_ok(sluice_engine_set_memory_budget(engine.get(), 0));
      EXPECT_EQ(info_of(engine).memory_budget, 0u);
    }
  }
}

TEST(ApiMemoryLimits, AsManyRowsOfLogitsAreKeptUnderEveryBudget) {
  sluice_load_options options = load_options();
  options.n_ctx = 300;
  options.logits_rows = 200;
  const std::vector<int32_t> tokens(200, 5);
  options.memory_budget = smallest_to_load(options);
  const Engine small = load(options);
  const Session first = create(small);
  expect_ok(sluice_forward(first.get(), tokens.data(), tokens.size(), SLUICE_ALL_LOGITS));
  EXPECT_EQ(sluice_forward(first.get(), tokens.data(), 1, SLUICE_ALL_LOGITS), SLUICE_OK);
  options.memory_budget = 0;
  const Engine large = load(options);
  expect_ok(sluice_engine_set_memory_budget(large.get(), info_of(large).memory_minimum));
  const Session second = create(large);
  expect_ok(sluice_forward(second.get(), tokens.data(), tokens.size(), SLUICE_ALL_LOGITS));
}

// A batch ends where positions are evicted.
TEST(ApiMemoryLimits, RowsThatAPolicyCannotKeepAreRefused) {
  sluice_load_options options = load_options();
  options.n_ctx = 1000;
  options.kv_policy = "heavy-hitter";
  options.kv_capacity = 128;
  options.logits_rows = 33;
  sluice_engine* none = nullptr;
  EXPECT_EQ(sluice_load(kSample.c_str(), &options, &none), SLUICE_INVALID_ARGUMENT);
  EXPECT_STREQ(sluice_last_error(), "logits_rows is 33 but must be 1 to 32");
  int facts = 0;
  const auto count = [](void* user, const char*, const char*, const char*) {
    ++*static_cast<int*>(user);
  };
  EXPECT_EQ(sluice_inspect(kSample.c_str(), &options, count, &facts), SLUICE_INVALID_ARGUMENT);
  EXPECT_EQ(facts, 0);
  options.logits_rows = 32;
  const std::vector<int32_t> tokens(32, 5);
  const Engine engine = load(options);
  const Session session = create(engine);
  expect_ok(sluice_forward(session.get(), tokens.data(), tokens.size(), SLUICE_ALL_LOGITS));
}

TEST(ApiMemoryLimits, InspectNamesWhatLoads) {
  for (const auto& [name, given] : option_sets()) {
    SCOPED_TRACE(name);
    sluice_load_options options = given;
    options.memory_budget = 2 * smallest_to_load(options);
    std::map<std::string, double> facts;
    std::map<std::string, double> contexts;
    struct Both {
      std::map<std::string, double>&facts, &contexts;
    } both{facts, contexts};
    expect_ok(sluice_inspect(
        kSample.c_str(), &options,
        [](void* user, const char* section, const char* key, const char* value) {
          Both& out = *static_cast<Both*>(user);
          if (section == nullptr) return;
          if (std::string(section) == "plan") {
            EXPECT_EQ(out.facts.count(key), 0u) << key;
            out.facts[key] = std::atof(value);
          }
          if (std::string(section) == "maxContextByKvType") out.contexts[key] = std::atof(value);
        },
        &both));
    EXPECT_EQ(static_cast<uint64_t>(facts["minimum"]), smallest_to_load(options));
    EXPECT_EQ(static_cast<uint64_t>(facts["budget"]), options.memory_budget);
    double sum = 0;
    for (const char* part :
         {"pinned", "streamBuffer", "smallTensors", "kv", "activations", "scratch", "tokenizer",
          "generation", "grammar", "adapters", "nextn", "draft", "reserve", "other"}) {
      sum += facts[part];
    }
    EXPECT_EQ(sum, facts["total"]);
    EXPECT_EQ(static_cast<double>(info_of(load(options)).memory_total), facts["total"]);
    EXPECT_EQ(contexts.size(), 4u);
    options.preload = 0;
    for (const auto& [type, longest] : contexts) {
      if (options.kv_policy != nullptr) continue;
      options.kv_type = type.c_str();
      options.n_ctx = static_cast<int32_t>(longest);
      EXPECT_NE(load(options), nullptr) << type << " " << longest;
      ++options.n_ctx;
      sluice_engine* none = nullptr;
      EXPECT_EQ(sluice_load(kSample.c_str(), &options, &none), SLUICE_BUDGET_TOO_SMALL)
          << type << " " << longest;
    }
  }
}

}  // namespace
}  // namespace sluice::test

// Every number that the planner names decides: the smallest budget works and one page less is
// refused, the longest context works and one position more is refused. Random options over models
// of many kinds, from their headers alone; then engines that were loaded with much and with little.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "../extent.h"
#include "fixtures_util.h"
#include "generate/draft_pair.h"
#include "session/plan_sizes.h"

namespace sluice::test {
namespace {

using session::EngineOptions;
using session::MemoryPlan;
using session::Planner;

constexpr uint64_t kPage = 65536;

struct Described {
  std::string name;
  native::ModelHeader header;
  session::Inspection found;
  [[nodiscard]] Planner planner(session::AdapterNeeds adapters = {}) const {
    return {found.program, *found.table, tokenizer::estimate_memory(header.header), adapters};
  }
};

Described describe(const std::string& path) {
  Described out;
  out.name = path.substr(path.rfind('/') + 1);
  Result<native::ModelHeader> header = native::read_header(path, {});
  EXPECT_TRUE(header.ok()) << path << header.status().message();
  out.header = std::move(*header);
  Result<session::Inspection> found = session::inspect(out.header.header, {});
  EXPECT_TRUE(found.ok()) << path << found.status().message();
  out.found = std::move(*found);
  return out;
}

// Dense models, mixtures, sliding windows, chunks, learned positions and recurrent states; further
// families if these are beside the checkout, all of them in the long suite.
std::vector<std::string> paths() {
  std::vector<std::string> out;
  for (const char* name : {"gemma2", "gpt2", "llama-gqa", "phi3-longrope-partial", "qwen3"}) {
    out.push_back(own_folder("arch") + "/" + name + ".gguf");
  }
  for (const char* name : {"gemma3-scaled", "lfm2", "llama4-chunks", "mistral-window", "qwen3moe",
                           "smallthinker-window", "starcoder2"}) {
    out.push_back(own_folder("families") + "/" + name + ".gguf");
  }
  const std::string shared = shared_folder("families");
  std::vector<std::string> further{"bloom", "deepseek2", "falcon-h1", "gemma3n",  "gpt-oss",
                                   "jamba", "llada",     "mamba",     "minicpm3", "t5"};
  if (extent(0, 1) == 1) further = further_families();
  for (const std::string& name : further) {
    if (!shared.empty()) out.push_back(shared + "/" + name + ".gguf");
  }
  return out;
}

// The spare bytes of a tab, in a smaller size.
uint64_t spare(uint64_t budget) {
  return budget > (64 << 10) ? std::min<uint64_t>({300'000, (budget - (64 << 10)) / 2, budget / 4})
                             : 0;
}

EngineOptions random_options(std::mt19937& random) {
  const auto one_in = [&random](uint32_t n) { return random() % n == 0; };
  EngineOptions o;
  o.n_threads = 1 + static_cast<int32_t>(random() % 3);
  if (one_in(3)) o.min_threads = 1 + static_cast<int32_t>(random() % 2);
  if (one_in(6)) o.min_budget = random() % (4 << 20);
  o.n_ctx = one_in(3) ? 0 : 1 + static_cast<int32_t>(random() % (one_in(4) ? 40'000 : 900));
  o.base_bytes = random() % (1 << 20);
  if (one_in(2)) o.page_bytes = kPage;
  if (one_in(3)) o.spare = spare;
  if (one_in(3)) o.parallel = 3;
  if (one_in(4)) o.n_sessions = 2;
  if (one_in(3)) o.structured_output = true;
  if (one_in(3)) o.draft_max = one_in(2) ? -1 : 5;
  if (one_in(4)) o.logits_rows = 1 + static_cast<int32_t>(random() % 256);
  const char* const types[] = {"f16", "f16", "q8_0", "q4_0", "q2", "q8_0,q4_0", "auto", "auto"};
  o.kv = *kv::parse_kv_types(types[random() % std::size(types)]);
  if (one_in(3)) {
    (one_in(2) ? o.kv_policy.window : o.kv_policy.heavy_hitter) = true;
    if (one_in(2)) o.kv_policy.capacity = 128 + static_cast<int32_t>(random() % 500);
  }
  return o;
}

std::string text_of(const EngineOptions& o) {
  return "threads " + std::to_string(o.min_threads) + " to " + std::to_string(o.n_threads) +
         " from " + std::to_string(o.min_budget) + " bytes ctx " + std::to_string(o.n_ctx) +
         " page " + std::to_string(o.page_bytes) + " parallel " + std::to_string(o.parallel) +
         " sessions " + std::to_string(o.n_sessions) + " draft " + std::to_string(o.draft_max) +
         " rows " + std::to_string(o.logits_rows) + " kv " +
         (o.kv.automatic ? "auto" : kv::kv_types_name(o.kv)) +
         (o.kv_policy.window         ? " window "
          : o.kv_policy.heavy_hitter ? " heavy-hitter "
                                     : " full ") +
         std::to_string(o.kv_policy.capacity) + (o.spare != nullptr ? " spare" : "") +
         (o.structured_output ? " structured" : "");
}

bool names(const Status& refused, uint64_t bytes) {
  return refused.code() == Code::kBudgetTooSmall &&
         refused.message().find(" is " + std::to_string(bytes) + " bytes") != std::string::npos;
}

// `plan(options)` succeeds with `bytes`, and is refused with one page less, which names `bytes`.
template <typename Plan>
void expect_smallest(uint64_t bytes, EngineOptions options, const Plan& plan) {
  EXPECT_EQ(bytes % options.page_bytes, 0u);
  options.memory_budget = bytes;
  const Status works = plan(options);
  EXPECT_TRUE(works.ok()) << works.message();
  options.memory_budget = bytes - options.page_bytes;
  const Status refused = plan(options);
  EXPECT_TRUE(names(refused, bytes)) << refused.message() << ", not " << bytes;
}

// The longest context works, and one position more does not. Returns whether there is one.
template <typename Plan>
bool expect_longest(int64_t longest, int64_t most, EngineOptions options, const Plan& plan) {
  if (longest > 0) {
    options.n_ctx = static_cast<int32_t>(longest);
    const Status works = plan(options);
    EXPECT_TRUE(works.ok()) << longest << ": " << works.message();
  }
  if (longest < most) {
    options.n_ctx = static_cast<int32_t>(longest == 0 ? kv::kMinPositions : longest + 1);
    if (longest == 0 && !options.kv_policy.evicts()) options.n_ctx = 1;
    const Status refused = plan(options);
    EXPECT_FALSE(refused.ok()) << "longer than " << longest;
  }
  return longest > 0;
}

EngineOptions same_context(EngineOptions options, const MemoryPlan& plan) {
  if (options.n_ctx == 0 && options.kv_policy.capacity == 0) {
    options.n_ctx = plan.kv.layout.positions;
  }
  return options;
}

uint64_t sum_of(const MemoryPlan& plan) {
  std::map<std::string, double> parts;
  session::report_plan(plan, nullptr, 0, [&](const char*, const char* key, const auto& value) {
    if (const double* bytes = std::get_if<double>(&value)) parts[key] = *bytes;
  });
  double sum = 0;
  size_t named = 0;
  for (const char* part :
       {"pinned", "streamBuffer", "smallTensors", "kv", "activations", "scratch", "tokenizer",
        "generation", "grammar", "adapters", "nextn", "draft", "reserve", "other"}) {
    EXPECT_EQ(parts.count(part), 1u) << part;
    sum += parts[part];
  }
  for (const session::MemoryPart& part : plan.parts()) {
    EXPECT_EQ(parts[part.name], static_cast<double>(part.bytes)) << part.name;
    ++named;
  }
  EXPECT_EQ(named + 1, 14u);  // "draft" is another plan
  EXPECT_EQ(sum, parts["total"]);
  EXPECT_EQ(parts["weights"], parts["pinned"] + parts["streamBuffer"]);
  return static_cast<uint64_t>(sum);
}

TEST(MemoryLimits, OfAModelAreExact) {
  std::mt19937 random(1);
  int planned = 0, refused = 0, contexts = 0;
  for (const std::string& path : paths()) {
    const Described model = describe(path);
    for (int round = 0; round < extent(40, 400) && !HasFailure(); ++round) {
      const EngineOptions given = random_options(random);
      SCOPED_TRACE(model.name + " round " + std::to_string(round) + ": " + text_of(given));
      const Planner planner = model.planner({round % 3 * 5000u, round % 3 * 7000u});
      const auto plan = [&](const EngineOptions& o) { return planner.plan(o).status(); };
      const Result<MemoryPlan> free = planner.plan(given);
      if (!free.ok()) {  // what this model cannot have, whatever the budget
        EXPECT_NE(free.status().code(), Code::kBudgetTooSmall);
        ++refused;
        continue;
      }
      ++planned;
      const uint64_t least = planner.smallest(given);
      ASSERT_GT(least, 0u);
      EXPECT_LE(least, free->budget.minimum);
      expect_smallest(least, given, plan);
      expect_smallest(free->budget.minimum, same_context(given, *free), plan);
      for (int i = 0; i < 3; ++i) {  // every larger budget works
        EngineOptions o = given;
        o.memory_budget = least + random() % (2 * least);
        o.memory_budget -= o.memory_budget % o.page_bytes;
        const Result<MemoryPlan> some = planner.plan(o);
        ASSERT_TRUE(some.ok()) << o.memory_budget << ": " << some.status().message();
        EXPECT_LE(sum_of(*some), o.memory_budget);
        EXPECT_EQ(sum_of(*some), some->total());
        EXPECT_EQ(some->bytes.reserve, o.spare == nullptr ? 0 : o.spare(o.memory_budget));
        const int32_t kept = std::min(some->batch.logits_rows, some->batch.n_batch);
        if (!o.kv_policy.evicts()) {
          EXPECT_GE(kept, std::min(o.logits_rows, some->context.n_ctx));
        }
        EngineOptions same = same_context(o, *some);
        expect_smallest(some->budget.minimum, same, plan);
        if (i > 0) continue;
        for (const char* type : {"f16", "q8_0", "q4_0", "q2"}) {
          o.kv = *kv::parse_kv_types(type);
          if (session::kv_bytes(model.found.program, *some, o.kv) == 0) continue;
          const int64_t longest =
              session::longest_context(model.found.program, some->kv.layout, o, planner);
          SCOPED_TRACE(std::string(type) + " in " + std::to_string(o.memory_budget));
          contexts += expect_longest(
              longest, std::min(model.found.program.max_context, model::kMaxContext), o, plan);
        }
      }
    }
  }
  EXPECT_GT(planned, 300);
  EXPECT_GT(refused, 20);
  EXPECT_GT(contexts, 500);
}

TEST(MemoryLimits, OfAModelAndItsDraftAreExact) {
  std::mt19937 random(2);
  int planned = 0, contexts = 0;
  for (const auto& [first, second] : {std::pair("arch/llama-gqa", "arch/llama-gqa"),
                                      {"arch/llama-gqa", "arch/qwen3"},
                                      {"families/lfm2", "arch/gemma2"},
                                      {"arch/qwen3", "arch/gpt2"}}) {
    const Described model = describe(own_folder(first) + ".gguf");
    const Described draft = describe(own_folder(second) + ".gguf");
    for (int round = 0; round < extent(60, 600) && !HasFailure(); ++round) {
      EngineOptions given = random_options(random);
      given.draft_max = -1;
      SCOPED_TRACE(model.name + " round " + std::to_string(round) + ": " + text_of(given));
      const generate::PairPlanner pair(model.header.header, given, draft.header.header, 12345);
      if (!pair.status().ok()) continue;
      const auto plan = [&](const EngineOptions& o) -> Status {
        const Result<generate::PairOptions> share = pair.share(o);
        if (!share.ok()) return share.status();
        const auto one = session::inspect(model.header.header, share->model);
        const auto other = session::inspect(draft.header.header, share->draft);
        if (!one.ok()) return one.status();
        if (!other.ok()) return other.status();
        EXPECT_LE(one->plan.total() + other->plan.total(), o.memory_budget);
        return {};
      };
      const uint64_t least = pair.smallest(given);
      ASSERT_GT(least, 0u);
      expect_smallest(least, given, plan);
      ++planned;
      EngineOptions o = given;
      for (int i = 0; i < 3; ++i) {
        o.memory_budget = least + random() % (2 * least);
        o.memory_budget -= o.memory_budget % o.page_bytes;
        const Status works = plan(o);
        ASSERT_TRUE(works.ok()) << o.memory_budget << ": " << works.message();
      }
      const Result<generate::PairOptions> share = pair.share(o);
      const auto one = session::inspect(model.header.header, share->model);
      expect_smallest(share->minimum, same_context(given, one->plan), plan);
      o.kv = *kv::parse_kv_types("q8_0");
      const int64_t longest = session::longest_context(one->program, one->plan.kv.layout, o, pair);
      contexts += expect_longest(longest, model::kMaxContext, o, plan);
    }
  }
  EXPECT_GT(planned, 120);
  EXPECT_GT(contexts, 50);
}

// The budget of an engine that was loaded with `before` can become what its error names.
void expect_named_budget(const std::string& path, EngineOptions options, uint64_t before) {
  options.memory_budget = before;
  Result<std::unique_ptr<native::Model>> model =
      native::Model::open(path, {.engine = options, .source = {}});
  ASSERT_TRUE(model.ok()) << model.status().message();
  const auto plan = (*model)->engine().replanner().plan_for(0);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const uint64_t named = plan->budget.minimum;
  if (before > 0) {
    EXPECT_LE(named, before);
  }
  const Status refused = (*model)->set_memory_budget(named - 1);
  EXPECT_TRUE(names(refused, named)) << refused.message() << ", not " << named;
  EXPECT_EQ((*model)->engine().plan().budget.bytes, before);
  const Status works = (*model)->set_memory_budget(named);
  EXPECT_TRUE(works.ok()) << works.message();
  EXPECT_LE((*model)->engine().plan().total(), named);
  EXPECT_TRUE((*model)->set_memory_budget(named + named / 16).ok());
  EXPECT_TRUE((*model)->set_memory_budget(0).ok());
}

TEST(MemoryLimits, OfALoadedEngineAreExact) {
  std::mt19937 random(3);
  int loaded = 0;
  for (const std::string& path : paths()) {
    const Described model = describe(path);
    for (int round = 0; round < extent(4, 20) && !HasFailure(); ++round) {
      EngineOptions o = random_options(random);
      o.page_bytes = 1;
      o.spare = nullptr;
      SCOPED_TRACE(model.name + " round " + std::to_string(round) + ": " + text_of(o));
      const uint64_t least = model.planner().smallest(o);
      if (least == 0) continue;
      ++loaded;
      expect_named_budget(path, o, 0);
      expect_named_budget(path, o, least + model.header.held);
      expect_named_budget(path, o, 2 * least);
    }
  }
  EXPECT_GT(loaded, 40);
}

}  // namespace
}  // namespace sluice::test

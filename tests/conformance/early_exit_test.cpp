// Early exit. If all tokens exit after a layer, the logits are bit-identical to those of the model
// that ends there. If some do, they do not depend on batches, budget or earlier sessions. If none
// do, they are the full model's. Skipped layers are neither computed nor read.
#include "approximate/early_exit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "deep_util.h"
#include "early_exit_util.h"
#include "generate/generation.h"
#include "gguf/early_exit.h"

namespace sluice::test {
namespace {

const Layers kInput = {1, 17, 29, 45, 31, 8, 12, 77, 5, 9, 200, 41, 18, 301, 7, 64, 2, 90, 33, 54};
const Layers kEight = {0, 1, 2, 3, 0, 1, 2, 3};

session::EngineOptions options_of(double confidence, uint64_t budget = 0) {
  session::EngineOptions o;
  o.n_ctx = 64;
  o.logits_rows = o.n_batch = 20;
  o.n_threads = 2;
  o.approximate.exits.confidence = confidence;
  o.memory_budget = budget;
  return o;
}

std::vector<float> logits_of(Deep deep, const session::EngineOptions& options, size_t step,
                             session::ExitCounts* counts = nullptr) {
  Opened opened = deep.open(options);
  if (opened.session == nullptr) return {};
  std::vector<float> out = all_logits(opened, kInput, step);
  if (counts != nullptr) *counts = opened.model->engine().approximate().exits;
  return out;
}

// Probe weights with which all tokens exit after a layer, or (-1) none.
std::vector<float> all_behind(int32_t layer, size_t n_layer = 8) {
  std::vector<float> out(n_layer * size_t{approximate::kExitFeatures}, 0.0f);
  for (size_t i = 0; i < n_layer; ++i) {
    out[i * size_t{approximate::kExitFeatures}] = static_cast<int32_t>(i) == layer ? 30.0f : -30.0f;
  }
  return out;
}

Deep with(const std::vector<float>& weights, const Layers& layers = kEight) {
  Deep deep(layers);
  deep.set(gguf::kExitWeights, weights);
  return deep;
}

std::vector<float> mixed(const session::EngineOptions& like = options_of(1)) {
  session::EngineOptions options = like;
  options.approximate.exits.measures = true;
  Opened opened = Deep(kEight).open(options);
  return opened.session == nullptr ? std::vector<float>() : mixed_exits(opened, kInput);
}

TEST(EarlyExit, EqualsTheModelThatEndsThere) {
  for (const int32_t layer : {1, 2, 5}) {
    SCOPED_TRACE(layer);
    const Layers shallow(kEight.begin(), kEight.begin() + layer + 1);
    const std::vector<float> made = logits_of(Deep(shallow), options_of(1), 20);
    ASSERT_FALSE(made.empty());
    for (const size_t step : {size_t{1}, size_t{7}, size_t{20}}) {
      session::ExitCounts counts;
      EXPECT_EQ(logits_of(with(all_behind(layer)), options_of(0.5), step, &counts), made);
      EXPECT_EQ(counts.rows, kInput.size());
      EXPECT_EQ(counts.left, kInput.size());
      EXPECT_EQ(counts.layers, kInput.size() * static_cast<size_t>(layer + 1));
    }
  }
}

TEST(EarlyExit, EqualsTheFullModelIfNoTokenExits) {
  const std::vector<float> whole = logits_of(Deep(kEight), options_of(1), 20);
  ASSERT_FALSE(whole.empty());
  EXPECT_EQ(logits_of(with(mixed()), options_of(1), 20), whole);  // not requested
  session::ExitCounts counts;
  EXPECT_EQ(logits_of(with(all_behind(-1)), options_of(0.5), 20, &counts), whole);
  EXPECT_EQ(counts.left, 0u);
  EXPECT_EQ(counts.layers, 8 * kInput.size());
  // Tokens cannot exit after the first and the last layers.
  for (const int32_t layer : {0, 6, 7}) {
    EXPECT_EQ(logits_of(with(all_behind(layer)), options_of(0.5), 1), whole) << layer;
  }
}

// Token by token, skipped layers are not computed; in one batch they are computed and discarded.
TEST(EarlyExit, DependsOnTheTextOnly) {
  const std::vector<float> weights = mixed();
  session::ExitCounts counts;
  const std::vector<float> apart = logits_of(with(weights), options_of(0.5), 1, &counts);
  ASSERT_FALSE(apart.empty());
  EXPECT_GT(counts.left, kInput.size() / 3);
  EXPECT_LT(counts.left, kInput.size());
  EXPECT_GT(counts.layers, 2 * kInput.size());
  EXPECT_LT(counts.layers, 7 * kInput.size());
  EXPECT_NE(apart, logits_of(Deep(kEight), options_of(1), 1));
  const uint64_t least =
      session::inspect(with(weights).header.header, options_of(0.5))->plan.budget.minimum;
  for (const size_t step : {size_t{1}, size_t{3}, size_t{20}}) {
    EXPECT_EQ(logits_of(with(weights), options_of(0.5), step), apart) << step;
  }
  for (const uint64_t budget : {least, least + 100000, least + 300000}) {
    for (const auto reads : {residency::DirectReads::kNone, residency::DirectReads::kAlways}) {
      session::EngineOptions options = options_of(0.5, budget);
      options.direct_reads = reads;
      EXPECT_EQ(logits_of(with(weights), options, 1), apart) << budget;
      options.n_threads = 1;
      EXPECT_EQ(logits_of(with(weights), options, 1), apart) << budget;
    }
  }
}

// KV caches of all types and policies are filled for tokens that exit, as for others.
TEST(EarlyExit, FillsEveryCache) {
  std::vector<session::EngineOptions> kinds(5, options_of(0.5));
  kinds[1].kv.k = kinds[1].kv.v = kv::KvType::kQ8_0;
  kinds[2].kv.k = kinds[2].kv.v = kv::KvType::kQ2;
  kinds[3].kv_policy.window = kinds[4].kv_policy.heavy_hitter = true;
  for (session::EngineOptions& options : kinds) {
    options.n_ctx = options.kv_policy.heavy_hitter || options.kv_policy.window ? 1024 : 512;
    options.kv_policy.capacity = 128;
    session::EngineOptions measuring = options;
    measuring.approximate.exits.confidence = 1;
    const std::vector<float> weights = mixed(measuring);
    Layers text;
    for (int32_t i = 0; i < 300; ++i) text.push_back(kInput[static_cast<size_t>(i * i % 19)]);
    std::vector<float> last[2];
    for (const size_t step : {size_t{1}, size_t{20}}) {
      Opened opened = with(weights).open(options);
      ASSERT_NE(opened.session, nullptr);
      last[step == 1] = all_logits(opened, text, step);
      const session::ExitCounts& counts = opened.model->engine().approximate().exits;
      EXPECT_GT(counts.left, 10u);
      EXPECT_LT(counts.left, counts.rows);
    }
    EXPECT_EQ(last[0], last[1]);
  }
}

TEST(EarlyExit, ReadsNothingOfSkippedLayers) {
  uint64_t read[2] = {};
  for (const bool leaves : {false, true}) {
    Deep deep = with(all_behind(leaves ? 1 : -1));
    const uint64_t least =
        session::inspect(deep.header.header, options_of(0.5))->plan.budget.minimum;
    Opened opened = deep.open(options_of(0.5, least));
    ASSERT_NE(opened.session, nullptr);
    const residency::Residency& r = opened.model->engine().residency();
    ASSERT_GT(r.plan().streamed_bytes, 0u);
    static_cast<void>(all_logits(opened, {1, 5}, 1));
    const uint64_t before = r.counts().filled_bytes;
    static_cast<void>(all_logits(opened, kInput, 1));
    read[leaves] = r.counts().filled_bytes - before;
  }
  EXPECT_LT(read[1], read[0] * 3 / 5) << read[0];
}

// Generates after kInput; returns the number of drafted tokens.
int32_t answer(Opened& opened, const generate::Options& how, std::vector<int32_t>* tokens) {
  auto generation = generate::Generation::begin(*opened.session, kInput, how);
  EXPECT_TRUE(generation.ok());
  for (session::Step step = session::Step::kProgress; step != session::Step::kDone;) {
    step = (*generation)->step(0);
    EXPECT_NE(step, session::Step::kFailed);
    if (step == session::Step::kFailed) break;
    const bool waits = step == session::Step::kBlocked;
    EXPECT_TRUE(!waits || opened.model->wait().ok());
    for (const auto& piece : (*generation)->take_pieces()) tokens->push_back(piece.token);
  }
  return (*generation)->counts().drafted;
}

// Output with drafts equals output without, and a sequence that was saved, forked or rewound
// continues like one that was not.
TEST(EarlyExit, OutputDependsOnTheTextOnly) {
  const std::vector<float> weights = mixed();
  std::vector<int32_t> wanted;
  for (const bool drafts : {false, true}) {
    session::EngineOptions options = options_of(0.5);
    options.n_ctx = 200;
    options.n_sessions = 2;
    options.draft_max = drafts ? 4 : 0;
    Opened opened = with(weights).open(options);
    ASSERT_NE(opened.session, nullptr);
    generate::Options how;
    how.sampling.temperature = 0;
    how.ignore_eos = true;
    how.max_tokens = 60;
    how.drafts.ngram = drafts;
    std::vector<int32_t> tokens;
    const int32_t drafted = answer(opened, how, &tokens);
    if (drafts) {
      EXPECT_EQ(tokens, wanted);
      EXPECT_GT(drafted, 0);
    }
    wanted = tokens;
    std::vector<int32_t> text = kInput;
    text.insert(text.end(), tokens.begin(), tokens.end());
    opened.session->clear();
    const std::vector<float> anew = logits_after(opened, text);
    const std::vector<int32_t> part(text.begin(), text.begin() + 40);
    static_cast<void>(logits_after(opened, part));  // rewinds
    auto other = session::Session::create(opened.model->engine().context());
    ASSERT_TRUE(other.ok());
    ASSERT_TRUE((*other)->fork_from(*opened.session).ok());
    EXPECT_EQ(logits_after(opened, text), anew);
    opened.session.swap(*other);
    EXPECT_EQ(logits_after(opened, text), anew);
  }
}

TEST(EarlyExit, HasItsOwnModelFingerprint) {
  const auto fingerprint = [](const std::vector<float>& weights, double confidence) {
    Opened opened = with(weights).open(options_of(confidence));
    return opened.model == nullptr ? session::Fingerprint() : opened.model->engine().fingerprint();
  };
  const session::Fingerprint half = fingerprint(all_behind(2), 0.5);
  EXPECT_STREQ(half.difference(fingerprint(all_behind(2), 1)), "approximations");
  EXPECT_STREQ(half.difference(fingerprint(all_behind(2), 0.6)), "approximations");
  EXPECT_STREQ(half.difference(fingerprint(all_behind(3), 0.5)), "approximations");
  EXPECT_EQ(half.difference(fingerprint(all_behind(2), 0.5)), nullptr);
}

TEST(EarlyExit, RejectsWhatItCannotDo) {
  const auto code = [](const Deep& deep, double confidence) {
    return session::inspect(deep.header.header, options_of(confidence)).status();
  };
  const Status none = code(Deep(kEight), 0.9);
  EXPECT_EQ(none.code(), Code::kInvalidArgument);
  EXPECT_NE(none.message().find("--calibrate"), std::string::npos) << none.message();
  for (const double wrong : {-0.1, 1.1, std::nan("")}) {
    EXPECT_EQ(code(with(all_behind(2)), wrong).code(), Code::kInvalidArgument) << wrong;
  }
  // Implausible values in a file.
  std::vector<std::vector<float>> bad = {{}, {1}, all_behind(2, 7), all_behind(2, 9)};
  for (const float value : {NAN, INFINITY, -INFINITY, 3e38f, -1e7f}) {
    bad.push_back(all_behind(2));
    bad.back()[17] = value;
  }
  for (const std::vector<float>& weights : bad) {
    const Status status = code(with(weights), 0.5);
    EXPECT_EQ(status.code(), Code::kBadHeader);
    EXPECT_NE(status.message().find("sluice.exit.weights"), std::string::npos);
    EXPECT_TRUE(code(with(weights), 1).ok());
  }
  // Finite values are harmless, however large.
  std::vector<float> huge(8 * size_t{approximate::kExitFeatures}, 1e6f);
  EXPECT_FALSE(logits_of(with(huge), options_of(0), 1).empty());
  EXPECT_FALSE(logits_of(with(huge), options_of(0.999999), 20).empty());
}

// Models with recurrent state are an error. For all others the logits are bit-identical in any
// batches.
TEST(EarlyExit, OtherFamiliesExitOrAreErrors) {
  size_t leave = 0, some = 0, refuse = 0;
  const std::vector<std::string> runs = further_families();
  std::vector<Reference> all = read_manifest(own_folder("families"));
  for (Reference& r : read_manifest(fixture_folder("families"), &runs)) all.push_back(r);
  for (Reference& r : read_manifest(fixture_folder("arch"))) all.push_back(r);
  for (const Reference& reference : all) {
    SCOPED_TRACE(reference.name);
    session::EngineOptions options = options_of(1);
    options.approximate.exits.measures = true;
    Result<native::ModelHeader> model = native::read_header(reference.path, {});
    ASSERT_TRUE(model.ok());
    const auto found = session::inspect(model->header, options);
    if (!found.ok()) {
      EXPECT_EQ(found.status().code(), Code::kInvalidArgument) << found.status().message();
      ++refuse;
      continue;
    }
    EXPECT_TRUE(std::none_of(found->program.ops.begin(), found->program.ops.end(),
                             [](const model::Op& op) { return op.carried() != nullptr; }));
    ++leave;
    const Layers text(reference.prompt.begin(), reference.prompt.begin() + 20);
    Opened opened = open_model(reference.path, options);
    ASSERT_NE(opened.session, nullptr);
    ExitThirds thirds(opened, text);
    session::Engine& engine = opened.model->engine();
    engine.approximate().watch = thirds.watch();
    engine.approximate().exits = {};
    const std::vector<float> apart = all_logits(opened, text, 1);
    EXPECT_GT(engine.approximate().exits.left, 0u);
    some += engine.approximate().exits.left < text.size();
    for (const size_t step : {size_t{6}, size_t{20}}) {
      opened.session->clear();
      EXPECT_EQ(all_logits(opened, text, step), apart) << step;
    }
    options.memory_budget = found->plan.budget.minimum;
    Opened streaming = open_model(reference.path, options);
    ASSERT_NE(streaming.session, nullptr);
    streaming.model->engine().approximate().watch = thirds.watch();
    EXPECT_EQ(all_logits(streaming, text, 1), apart);
  }
  std::printf("%zu families exit early, %zu are errors\n", leave, refuse);
  EXPECT_GT(leave, 0u);
  EXPECT_GE(some, leave * 3 / 4);
}

}  // namespace
}  // namespace sluice::test

// Layer skipping. Without it the logits are bit-identical to the full model's; with it, to those of
// a model made without these layers, and the plan has the same bytes, under every budget.
#include "approximate/layer_skipping.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <cstring>

#include "deep_util.h"

namespace sluice::test {
namespace {

const Layers kTokens = {1, 17, 29, 45, 31, 8, 12, 77, 5, 9, 200, 41};
// Of eight layers, 5 is the least important, then 2, 4 and 3.
const std::vector<float> kWorth = {FLT_MAX, FLT_MAX, 0.5f, 2, 0.75f, 0.25f, FLT_MAX, FLT_MAX};

const Layers kEight = {0, 1, 2, 3, 0, 1, 2, 3};
// `kEight` without these layers.
Layers without(const Layers& gone) {
  Layers out;
  for (size_t i = 0; i < kEight.size(); ++i) {
    if (std::find(gone.begin(), gone.end(), static_cast<int32_t>(i)) == gone.end()) {
      out.push_back(kEight[i]);
    }
  }
  return out;
}

session::EngineOptions options_of(double ratio, uint64_t budget = 0) {
  session::EngineOptions o;
  o.n_ctx = 64;
  o.logits_rows = o.n_batch = 8;
  o.n_threads = 2;
  o.approximate.skip_layers_ratio = ratio;
  o.memory_budget = budget;
  return o;
}

struct Ran {
  std::vector<float> logits;
  session::MemoryPlan plan;
};
Ran ran(Deep deep, const session::EngineOptions& options) {
  Opened opened = deep.open(options);
  if (opened.session == nullptr) return {};
  Ran out;
  out.logits = all_logits(opened, kTokens, options.memory_budget == 0 ? 8 : 1);
  out.plan = opened.model->engine().plan();
  return out;
}

TEST(LayerSkipping, EqualsTheModelMadeWithoutTheLayers) {
  const std::pair<double, Layers> kCases[] = {{0, {}},       {0.25, {5}},       {0.4, {5}},
                                              {0.5, {2, 5}}, {0.75, {2, 4, 5}}, {1, {2, 3, 4, 5}}};
  const std::vector<float> whole = ran(Deep(kEight), options_of(0)).logits;
  ASSERT_FALSE(whole.empty());
  for (const auto& [ratio, gone] : kCases) {
    SCOPED_TRACE(ratio);
    const Ran made = ran(Deep(without(gone)), options_of(0));
    const Ran skipped = ran(Deep(kEight, kWorth), options_of(ratio));
    EXPECT_EQ(skipped.logits, made.logits);
    EXPECT_EQ(skipped.logits == whole, gone.empty());
    EXPECT_EQ(skipped.plan.budget.minimum, made.plan.budget.minimum);
    EXPECT_EQ(skipped.plan.bytes.kv, made.plan.bytes.kv);
    EXPECT_EQ(skipped.plan.bytes.small_tensors, made.plan.bytes.small_tensors);
    EXPECT_EQ(skipped.plan.bytes.activations, made.plan.bytes.activations);
    EXPECT_EQ(skipped.plan.weights.total_bytes, made.plan.weights.total_bytes);
    EXPECT_EQ(skipped.plan.weights.units.size(), made.plan.weights.units.size());
    // Streamed: the same, and a pass reads nothing of the skipped layers.
    const Ran streamed = ran(Deep(kEight, kWorth), options_of(ratio, made.plan.budget.minimum));
    const Ran made_streamed = ran(Deep(without(gone)), options_of(0, made.plan.budget.minimum));
    EXPECT_EQ(streamed.logits, made.logits);
    EXPECT_EQ(streamed.plan.weights.streamed_bytes, made_streamed.plan.weights.streamed_bytes);
    EXPECT_GT(streamed.plan.weights.streamed_bytes, 0u);
  }
}

TEST(LayerSkipping, NeedsImportanceAndARatio) {
  Deep none(kEight), few(kEight, {1, 2, 3}), whole(kEight, kWorth);
  for (Deep* deep : {&none, &few}) {
    const Status status = session::inspect(deep->header.header, options_of(0.1)).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.message().find("--calibrate"), std::string::npos) << status.message();
    EXPECT_TRUE(session::inspect(deep->header.header, options_of(0)).ok());
  }
  for (const double wrong : {-0.1, 1.1, std::nan("")}) {
    EXPECT_EQ(session::inspect(whole.header.header, options_of(wrong)).status().code(),
              Code::kInvalidArgument);
  }
  const auto found = session::inspect(whole.header.header, options_of(1));
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->program.skipped, (Layers{2, 3, 4, 5}));
  EXPECT_EQ(found->program.hp.n_layer, 8);
}

// Odd values do not affect other layers: NaN counts as infinite.
TEST(LayerSkipping, NonFiniteImportanceKeepsTheLayer) {
  Deep odd(kEight, {0, 0, NAN, 1, INFINITY, 1, 0, 0});
  const auto found = session::inspect(odd.header.header, options_of(0.5));
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->program.skipped, (Layers{3, 5}));
}

// Tokens computed with other layers are not a reusable prefix.
TEST(LayerSkipping, HasItsOwnModelFingerprint) {
  Deep a(kEight, kWorth), b(kEight, kWorth), c(kEight, kWorth);
  const Opened whole = a.open(options_of(0)), half = b.open(options_of(0.5));
  const Opened again = c.open(options_of(0.5));
  ASSERT_TRUE(whole.model && half.model && again.model);
  const session::Fingerprint own = half.model->engine().fingerprint();
  EXPECT_STREQ(own.difference(whole.model->engine().fingerprint()), "approximations");
  EXPECT_EQ(own.difference(again.model->engine().fingerprint()), nullptr);
}

// With sliding windows, recurrent layers and shared KV caches the rest of the model runs. If all
// skippable layers are skipped, only the first two and the last two are computed.
TEST(LayerSkipping, OtherFamiliesRunWithSkippedLayers) {
  const std::string folder = fixture_folder("families");
  size_t tried = 0, skipped = 0;
  const std::vector<std::string> runs = further_families();
  for (const Reference& reference : read_manifest(folder, &runs)) {
    Result<native::ModelHeader> model = native::read_header(reference.path, {});
    ASSERT_TRUE(model.ok()) << reference.name;
    const auto found = session::inspect(model->header, options_of(0));
    ASSERT_TRUE(found.ok()) << reference.name;
    const Layers may = approximate::skippable_layers(found->program);
    for (const int32_t layer : may) {
      EXPECT_GE(layer, 2);
      EXPECT_LT(layer + 2, found->program.hp.n_layer);
    }
    if (may.empty() || ++tried > 12) continue;
    SCOPED_TRACE(reference.name);
    session::EngineOptions options = options_of(0);
    options.approximate.skip = may;
    Result<session::Inspection> part = session::inspect(model->header, options);
    ASSERT_TRUE(part.ok()) << part.status().message();
    for (const model::Op& op : part->program.ops) {
      EXPECT_TRUE(std::find(may.begin(), may.end(), op.layer) == may.end());
    }
    EXPECT_LT(part->plan.weights.total_bytes, found->plan.weights.total_bytes);
    const Layers tokens(reference.prompt.begin(), reference.prompt.begin() + 9);
    const auto logits = [&](uint64_t budget) {
      options.memory_budget = budget;
      Opened opened = open_model(reference.path, options);
      return opened.session == nullptr ? std::vector<float>()
                                       : all_logits(opened, tokens, budget == 0 ? 8 : 1);
    };
    const std::vector<float> resident = logits(0);
    EXPECT_FALSE(resident.empty());
    EXPECT_EQ(logits(part->plan.budget.minimum), resident);
    ++skipped;
  }
  if (!shared_folder("families").empty()) {
    EXPECT_GE(skipped, 4u);
  }
  if (tried == 0) GTEST_SKIP() << "no family with a skippable layer";
  std::printf("%zu families with skipped layers\n", skipped);
}

}  // namespace
}  // namespace sluice::test

// Embedders and rerankers compared with their references: every token's row and the pooled result,
// on every instruction set of this machine. Results are bit-identical for any budget, number of
// threads and other inputs in the batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <tuple>

#include "../sanitized.h"
#include "embed_util.h"

namespace sluice::test {
namespace {

using model::Pooling;

constexpr double kCosine = 0.9999;
constexpr double kNmse = 1e-4;  // for any token's row

struct Embedding {
  std::string name, path;
  std::vector<int32_t> tokens;
  std::vector<float> pooled, rows;
  Pooling pooling = Pooling::kNone;
  struct Also {
    std::vector<int32_t> tokens;
    std::vector<float> values;
  };
  std::vector<Also> also;
};

std::vector<Embedding> embedding_references() {
  std::vector<Embedding> out;
  const std::string folder = shared_folder("embeddings");
  std::ifstream file(folder + "/manifest.json");
  if (!file) return out;
  for (const auto& entry : nlohmann::json::parse(file)) {
    Embedding r;
    r.name = entry["name"];
    r.path = folder + "/" + entry["file"].get<std::string>();
    r.tokens = entry["tokens"].get<std::vector<int32_t>>();
    r.pooled = read_floats(folder + "/" + entry["embedding"].get<std::string>());
    r.rows = read_floats(folder + "/" + entry["token_embeddings"].get<std::string>());
    const std::string pooling = entry["pooling"];
    r.pooling = pooling == "mean"   ? Pooling::kMean
                : pooling == "cls"  ? Pooling::kCls
                : pooling == "last" ? Pooling::kLast
                                    : Pooling::kRank;
    for (const auto& also : entry["also"]) {
      r.also.push_back(
          {also["tokens"].get<std::vector<int32_t>>(), also["values"].get<std::vector<float>>()});
    }
    out.push_back(std::move(r));
  }
  return out;
}

double cosine(const float* a, const float* b, size_t n) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < n; ++i) {
    ab += static_cast<double>(a[i]) * b[i];
    aa += static_cast<double>(a[i]) * a[i];
    bb += static_cast<double>(b[i]) * b[i];
  }
  return ab / std::sqrt(aa * bb);
}

session::EngineOptions options_for(const char* kernels, int threads) {
  session::EngineOptions options;
  options.n_ctx = 64;
  options.n_threads = threads;
  options.kernels = kernels;
  return options;
}

struct EmbeddingCase {
  Embedding reference;
  const char* kernels;
};

std::vector<EmbeddingCase> embedding_cases() {
  std::vector<EmbeddingCase> out;
  for (const Embedding& r : embedding_references()) {
    for (const char* const* name = kernels::available(); *name != nullptr; ++name) {
      out.push_back({r, *name});
      if (kSanitized) break;  // only the best table
    }
  }
  if (out.empty()) std::printf("skipped: no ../shared/fixtures/embeddings\n");
  return out;
}

class EmbeddingTest : public testing::TestWithParam<EmbeddingCase> {
 protected:
  // The pooled inputs of the reference, and the expected results.
  [[nodiscard]] Texts texts() const {
    const Embedding& r = GetParam().reference;
    Texts out{r.tokens};
    for (const auto& also : r.also) out.push_back(also.tokens);
    return out;
  }
  [[nodiscard]] std::vector<float> values() const {
    const Embedding& r = GetParam().reference;
    std::vector<float> out = r.pooled;
    for (const auto& also : r.also) out.insert(out.end(), also.values.begin(), also.values.end());
    return out;
  }
  static embed::Options raw() {
    embed::Options options;
    options.normalize = false;
    return options;
  }
};

TEST_P(EmbeddingTest, EveryTokenRowMatches) {
  const Embedding& r = GetParam().reference;
  Opened opened = open_model(r.path, options_for(GetParam().kernels, 1));
  ASSERT_NE(opened.session, nullptr);
  embed::Options options = raw();
  options.pooling = Pooling::kNone;
  const std::vector<float> ours = embed(opened, {r.tokens}, options);
  ASSERT_EQ(ours.size(), r.rows.size());
  const size_t n = ours.size() / r.tokens.size();
  for (size_t t = 0; t < r.tokens.size(); ++t) {
    EXPECT_LE(nmse(&ours[t * n], &r.rows[t * n], n), kNmse) << "token " << t;
    EXPECT_GE(cosine(&ours[t * n], &r.rows[t * n], n), kCosine) << "token " << t;
  }
}

TEST_P(EmbeddingTest, PooledResultsMatchTogetherAndAlone) {
  const Embedding& r = GetParam().reference;
  Opened opened = open_model(r.path, options_for(GetParam().kernels, 1));
  ASSERT_NE(opened.session, nullptr);
  const std::vector<float> together = embed(opened, texts(), raw());
  const std::vector<float> expected = values();
  ASSERT_EQ(together.size(), expected.size());
  EXPECT_EQ(opened.model->engine().program().hp.pooling, r.pooling);
  const size_t n = r.pooled.size();
  for (size_t i = 0; i < expected.size(); i += n) {
    if (r.pooling == Pooling::kRank) {
      for (size_t j = i; j < i + n; ++j) EXPECT_NEAR(together[j], expected[j], 2e-3) << j;
    } else {
      EXPECT_GE(cosine(&together[i], &expected[i], n), kCosine) << "text " << i / n;
      EXPECT_LE(nmse(&together[i], &expected[i], n), kNmse) << "text " << i / n;
    }
  }
  std::vector<float> alone;
  for (const auto& text : texts()) {
    const std::vector<float> one = embed(opened, {text}, raw());
    alone.insert(alone.end(), one.begin(), one.end());
  }
  ASSERT_EQ(alone.size(), together.size());
  EXPECT_EQ(std::memcmp(alone.data(), together.data(), alone.size() * sizeof(float)), 0);
}

TEST_P(EmbeddingTest, BudgetThreadsAndOtherInputsChangeNoBit) {
  const Embedding& r = GetParam().reference;
  session::EngineOptions options = options_for(GetParam().kernels, 1);
  Opened resident = open_model(r.path, options);
  ASSERT_NE(resident.session, nullptr);
  for (const Pooling pooling : {r.pooling, Pooling::kNone, Pooling::kMean, Pooling::kLast}) {
    embed::Options what = raw();
    what.pooling = pooling;
    const std::vector<float> expected = embed(resident, texts(), what);
    const auto same = [&](session::EngineOptions other, const char* name) {
      Opened opened = open_model(r.path, other);
      ASSERT_NE(opened.session, nullptr) << name;
      const std::vector<float> ours = embed(opened, texts(), what);
      ASSERT_EQ(ours.size(), expected.size()) << name;
      EXPECT_EQ(std::memcmp(ours.data(), expected.data(), ours.size() * sizeof(float)), 0)
          << name << ": NMSE " << nmse(ours.data(), expected.data(), ours.size());
    };
    session::EngineOptions other = options;
    other.n_threads = 3;
    same(other, "three threads");
    other.n_batch = 7;  // causal models split inputs
    same(other, "seven tokens a batch");
    other.n_batch = 0;
    if (r.path.find("/bert-") == std::string::npos) {  // its positions are learned
      other.n_ctx = 200;
      same(other, "a longer context");
      other.n_ctx = options.n_ctx;
    }
    other.memory_budget = smallest_budget(r.path, other);
    same(other, "the smallest budget");
    other.memory_budget = other.memory_budget * 3 / 2;
    same(other, "1.5 times the smallest budget");
  }
}

TEST_P(EmbeddingTest, ResultsAreNormalizedAndTruncated) {
  const Embedding& r = GetParam().reference;
  if (r.pooling == Pooling::kRank) GTEST_SKIP() << "scores are not normalized";
  Opened opened = open_model(r.path, options_for(GetParam().kernels, 2));
  ASSERT_NE(opened.session, nullptr);
  const std::vector<float> all = embed(opened, {r.tokens}, raw());
  embed::Options options;
  options.dimensions = 24;
  const std::vector<float> ours = embed(opened, {r.tokens}, options);
  ASSERT_EQ(ours.size(), 24u);
  EXPECT_GE(cosine(ours.data(), all.data(), 24), 1 - 1e-6);
  double length = 0;
  for (const float x : ours) length += static_cast<double>(x) * x;
  EXPECT_NEAR(length, 1, 1e-6);
}

std::string embedding_name(const testing::TestParamInfo<EmbeddingCase>& info) {
  std::string name = info.param.reference.name + "_" + info.param.kernels;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Embeddings, EmbeddingTest, testing::ValuesIn(embedding_cases()),
                         embedding_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EmbeddingTest);

}  // namespace
}  // namespace sluice::test

// Error feedback for the experts of a mixture: whose inputs each expert's Hessian holds, what an
// expert with few tokens takes from the others, and the errors of outputs with and without.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "convert/chunks.h"
#include "convert/hessian.h"
#include "convert/source.h"
#include "gguf/gguf.h"
#include "gptq_inputs.h"
#include "io/byte_source.h"
#include "kernels/kernels.h"
#include "measure/hessian_collector.h"
#include "model/program.h"
#include "tensor_header.h"

namespace sluice::convert {
namespace {

constexpr size_t kExpertCols = 256, kExpertRows = 16, kExperts = 3;
constexpr gguf::TensorType kExpertType = gguf::TensorType::kQ4_0;

gguf::Header experts_header(const std::vector<std::string>& names) {
  return test::header_of(names, 3, {kExpertCols, kExpertRows, kExperts, 1});
}

// Inputs of each expert; the experts' differ in their directions.
std::vector<float> inputs_of(size_t expert, size_t tokens) {
  return correlated(tokens, kExpertCols, 10 * static_cast<unsigned>(expert) + 1);
}
std::shared_ptr<const Hessian> expert_hessian(size_t expert, size_t tokens) {
  return std::make_shared<Hessian>(hessian_of(inputs_of(expert, tokens), kExpertCols, 256));
}

class GptqExperts : public testing::Test {
 protected:
  GptqExperts() : header_(experts_header(names_)) {
    values_ = normal(kExperts * kExpertRows * kExpertCols, 77);
    bytes_.resize(values_.size() * 4);
    std::memcpy(bytes_.data(), values_.data(), bytes_.size());
    files_.push_back(io::open_memory(bytes_));
    Result<Source> source = Source::create(header_, files_);
    EXPECT_TRUE(source.ok());
    source_ = std::make_unique<Source>(std::move(*source));
  }
  // The values as written with these Hessians; null: without.
  std::vector<float> written(const TensorHessians* hessians, int threads = 2) {
    Hessians all;
    if (hessians != nullptr) all.set(names_[0], *hessians);
    Result<std::unique_ptr<ChunkMaker>> maker =
        ChunkMaker::create(*source_, threads, 64 << 20, 0, &all);
    EXPECT_TRUE(maker.ok()) << maker.status().message();
    RowForm form;
    form.hessians = all.find(header_.tensors[0]);
    EXPECT_EQ(form.hessians == nullptr, hessians == nullptr);
    std::vector<uint8_t> out;
    TensorReport report;
    const auto put = [&out](std::span<const uint8_t> piece) {
      out.insert(out.end(), piece.begin(), piece.end());
      return Status();
    };
    EXPECT_TRUE((*maker)->make(header_.tensors[0], kExpertType, nullptr, put, &report, form).ok());
    std::vector<float> y(values_.size());
    kernels::best().dequantize(static_cast<kernels::Type>(kExpertType), out.data(),
                               static_cast<int64_t>(y.size()), y.data());
    return y;
  }
  // What the errors of an expert cost on other inputs of its kind.
  double cost(size_t expert, const std::vector<float>& y) {
    std::vector<double>& h = costs_[expert];
    if (h.empty()) h = square_of(*expert_hessian(expert, 2000), 0);
    double sum = 0;
    for (size_t row = 0; row < kExpertRows; ++row) {
      const size_t at = (expert * kExpertRows + row) * kExpertCols;
      sum += cost_of(h, &values_[at], &y[at]);
    }
    return sum;
  }

  const std::vector<std::string> names_ = {"blk.0.ffn_up_exps.weight"};
  gguf::Header header_;  // its names are views
  std::vector<float> values_;
  std::vector<uint8_t> bytes_;
  std::vector<std::unique_ptr<io::ByteSource>> files_;
  std::unique_ptr<Source> source_;
  std::map<size_t, std::vector<double>> costs_;  // by expert
};

TEST_F(GptqExperts, LoseLessWithTheirOwnInputs) {
  const TensorHessians own = {expert_hessian(0, 1000), expert_hessian(1, 1000), nullptr};
  const TensorHessians common = {std::shared_ptr<const Hessian>(sum_of(own))};
  const std::vector<float> without = written(nullptr), with = written(&own),
                           together = written(&common);
  for (const size_t expert : {0u, 1u}) {
    EXPECT_LT(cost(expert, with), 0.5 * cost(expert, without)) << expert;
    EXPECT_LT(cost(expert, with), 0.9 * cost(expert, together)) << expert;
  }
  // The third has no tokens: it is made with the inputs of the others.
  const auto third = [](const std::vector<float>& y) {
    return std::vector<float>(y.begin() + 2 * kExpertRows * kExpertCols, y.end());
  };
  EXPECT_EQ(third(with), third(together));
  EXPECT_EQ(written(&own, 1), with);
}

// Sums of few tokens are zero in most directions, and errors there would be free.
TEST_F(GptqExperts, WithFewTokensRestOnTheOthers) {
  const std::shared_ptr<const Hessian> all = expert_hessian(0, 1000), few = expert_hessian(0, 4);
  const TensorHessians with_others = {few, all, nullptr}, alone = {few, few, nullptr};
  EXPECT_LT(cost(0, written(&with_others)), 0.8 * cost(0, written(&alone)));
}

TEST_F(GptqExperts, BlendInTokens) {
  const std::shared_ptr<const Hessian> a = expert_hessian(0, 100), b = expert_hessian(1, 300);
  const std::unique_ptr<Hessian> sum = sum_of({a, nullptr, b});
  EXPECT_EQ(sum->tokens(), 400);
  const Hessian blend = with_prior(a.get(), *sum);
  EXPECT_DOUBLE_EQ(blend.tokens(), 100 + kPriorTokens);
  for (const size_t i : {0u, 5u, 777u}) {
    const double average = (a->triangle(0)[i] + b->triangle(0)[i]) / 400.0;
    EXPECT_NEAR(blend.triangle(0)[i], a->triangle(0)[i] + kPriorTokens * average, 1e-3) << i;
  }
  EXPECT_EQ(sum_of({nullptr, nullptr}), nullptr);
}

// An expert's inputs are those of its own tokens, which gate and up share.
TEST(HessianCollector, KeepsTheInputsOfEachExpert) {
  const std::vector<std::string> names = {"blk.0.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight"};
  const gguf::Header header = experts_header(names);
  std::map<uint64_t, std::vector<float>> inputs = {{0, inputs_of(0, 5)}, {2, inputs_of(2, 7)}};
  for (const bool by_expert : {true, false}) {
    measure::HessianCollector collector(header, {256, by_expert, 0}, 1);
    for (int window = 0; window < 2; ++window) {
      for (const auto& [expert, x] : inputs) {
        for (const gguf::Tensor& t : header.tensors) {
          model::Mat mat;
          mat.name = std::string(t.name);
          mat.rows = mat.slice_rows = kExpertRows;
          mat.cols = kExpertCols;
          mat.row0 = static_cast<int64_t>(expert * kExpertRows);
          collector.add(mat, x.data(), mat.cols, static_cast<int32_t>(x.size() / kExpertCols));
        }
      }
    }
    const Hessians found = collector.hessians();
    const TensorHessians &gate = *found.find(header.tensors[0]),
                         &up = *found.find(header.tensors[1]);
    EXPECT_EQ(gate, up);
    ASSERT_EQ(gate.size(), by_expert ? 3u : 1u);
    EXPECT_EQ(gate[0]->tokens(), by_expert ? 10 : 24);
    EXPECT_EQ(found.bytes(), (by_expert ? 2u : 1u) * gate[0]->bytes());
    if (!by_expert) continue;
    EXPECT_EQ(gate[1], nullptr);
    EXPECT_EQ(gate[2]->tokens(), 14);
    const Hessian wanted = hessian_of(inputs[2], kExpertCols, 256);
    EXPECT_FLOAT_EQ(gate[2]->triangle(0)[300], 2 * wanted.triangle(0)[300]);
  }
}

// A small budget leaves one for all experts of a layer, and a smaller one none.
TEST(HessianCollector, StaysWithinTheBudget) {
  const std::vector<std::string> names = {"blk.0.ffn_up_exps.weight"};
  const gguf::Header header = experts_header(names);
  const uint64_t one = Hessian::bytes_for(kExpertCols, 256);
  const auto plan = [&](uint64_t budget) { return *measure::plan_hessians(header, budget); };
  EXPECT_TRUE(plan(6 * one).by_expert);
  EXPECT_EQ(plan(6 * one).bytes, 3 * one);
  EXPECT_FALSE(plan(6 * one - 1).by_expert);
  EXPECT_EQ(plan(6 * one - 1).bytes, one);
  EXPECT_EQ(measure::plan_hessians(header, 2 * one - 1).status().code(), Code::kBudgetTooSmall);
}

}  // namespace
}  // namespace sluice::convert

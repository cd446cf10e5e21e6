// Sensitivities of tensors from trials on one or several at a time, the types that --target-size
// derives from them, and that a tensor read as another type equals what a conversion would write.
#include "convert/sensitivity.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "convert/bit_allocation.h"
#include "convert/chunks.h"
#include "convert/quantized_source.h"
#include "tensor_header.h"

namespace sluice::convert {
namespace {

using gguf::TensorType;
using Known = Sensitivity::Known;

gguf::Header header_of(const std::vector<std::string>& names) {
  return test::header_of(names, 2, {256, 16, 1, 1});
}

TEST(Sensitivity, OfOneTensorIsALineThroughItsTrials) {
  const std::vector<std::string> names = {"output.weight"};
  const std::vector<ErrorsByType> errors = {
      {{TensorType::kQ8_0, 0.01}, {TensorType::kQ4_0, 0.1}, {TensorType::kQ5_0, 0.055}}};
  const auto s =
      sensitivities_of(header_of(names), errors,
                       {{names, {TensorType::kQ8_0}, 3}, {names, {TensorType::kQ4_0}, 12}});
  EXPECT_EQ(s[0].known(), Known::kAlone);
  EXPECT_DOUBLE_EQ(s[0].change(TensorType::kQ8_0, 0.01), 3);
  EXPECT_DOUBLE_EQ(s[0].change(TensorType::kQ4_0, 0.1), 12);
  EXPECT_NEAR(s[0].change(TensorType::kQ5_0, 0.055), 7.5, 1e-9);
}

TEST(Sensitivity, OfSeveralTensorsIsSeparated) {
  std::vector<std::string> names;
  std::vector<ErrorsByType> errors;
  std::vector<double> slopes;
  std::vector<Probe> probes(5);
  for (int layer = 0; layer < 3; ++layer) {
    for (int kind = 0; kind < 2; ++kind) {
      names.push_back("blk." + std::to_string(layer) + (kind == 0 ? ".attn_q" : ".ffn_up") +
                      ".weight");
      const double error = 0.1 + 0.01 * layer;
      errors.push_back({{TensorType::kQ4_0, error}});
      slopes.push_back((layer + 1) * (kind == 0 ? 1 : 5));
      for (Probe* p :
           {&probes[static_cast<size_t>(layer)], &probes[static_cast<size_t>(3 + kind)]}) {
        p->tensors.push_back(names.back());
        p->types.push_back(TensorType::kQ4_0);
        p->change += slopes.back() * error;
      }
    }
  }
  const auto s = sensitivities_of(header_of(names), errors, probes);
  for (size_t i = 0; i < s.size(); ++i) {
    EXPECT_EQ(s[i].known(), Known::kTogether);
    EXPECT_NEAR(s[i].slope(), slopes[i], 0.01 * slopes[i]) << names[i];
  }
}

TEST(Sensitivity, OfAnUnmeasuredTensorIsTheMeanOfItsKind) {
  const std::vector<std::string> names = {"blk.0.ffn_up.weight", "blk.1.ffn_up.weight",
                                          "blk.2.ffn_up.weight", "output.weight"};
  const std::vector<ErrorsByType> errors(4, {{TensorType::kQ4_0, 0.5}});
  const auto probe = [&](size_t i, double change) {
    return Probe{{names[i]}, {TensorType::kQ4_0}, change};
  };
  const auto s =
      sensitivities_of(header_of(names), errors, {probe(0, 1), probe(1, 3), probe(2, 0)});
  EXPECT_EQ(s[0].known(), Known::kAlone);
  EXPECT_EQ(s[2].known(), Known::kOfKind);
  EXPECT_DOUBLE_EQ(s[2].slope(), 4);
  EXPECT_EQ(s[3].known(), Known::kOfKind);
  const auto none = sensitivities_of(header_of(names), errors, {});
  EXPECT_EQ(none[0].known(), Known::kNot);
  EXPECT_DOUBLE_EQ(none[0].change(TensorType::kQ4_0, 0.5), 0.5);
  // Trials of unknown tensors are ignored.
  const auto odd = sensitivities_of(header_of(names), errors,
                                    {{{"other"}, {TensorType::kQ4_0}, 1}, probe(0, -1)});
  EXPECT_EQ(odd[0].known(), Known::kNot);
}

class Weights : public testing::Test {
 protected:
  Weights() {
    std::mt19937 random(3);
    std::normal_distribution<float> draw(0, 0.05f);
    header_ = header_of(names_);
    std::vector<float> values(3 * 256 * 16);
    for (float& x : values) x = draw(random);
    bytes_.resize(values.size() * 4);
    std::memcpy(bytes_.data(), values.data(), bytes_.size());
    files_.push_back(io::open_memory(bytes_));
    Result<Source> source = Source::create(header_, files_);
    EXPECT_TRUE(source.ok());
    source_ = std::make_unique<Source>(std::move(*source));
    Result<std::unique_ptr<ChunkMaker>> maker = ChunkMaker::create(*source_, 1, 64 << 20, 0);
    EXPECT_TRUE(maker.ok());
    maker_ = std::move(*maker);
  }
  const std::vector<std::string> names_ = {"blk.0.ffn_up.weight", "blk.0.ffn_gate.weight",
                                           "output.weight"};
  gguf::Header header_;  // its names are views
  std::vector<uint8_t> bytes_;
  std::vector<std::unique_ptr<io::ByteSource>> files_;
  std::unique_ptr<Source> source_;
  std::unique_ptr<ChunkMaker> maker_;
};

TEST_F(Weights, BitsGoWhereTheyMatter) {
  Options options;
  options.target_bytes = 3 * 256 * 16 * 5 / 8 + 512;
  options.min_cosine = 0.9;
  const std::unique_ptr<Layout> form = make_gguf_layout();
  for (size_t matters = 0; matters < 3; ++matters) {
    options.probes.clear();
    for (size_t i = 0; i < 3; ++i) {
      options.probes.push_back({{std::string(header_.tensors[i].name)},
                                {TensorType::kQ4_0},
                                i == matters ? 1.0 : 0.001});
    }
    const Result<Sized> sized = types_for_size(header_, {*form, header_, 0}, options, maker_.get());
    ASSERT_TRUE(sized.ok()) << sized.status().message();
    const auto bits = [&](size_t i) {
      const gguf::TypeInfo& info = *gguf::type_info(sized->choices[i].type);
      return static_cast<double>(info.block_bytes) / info.block_size;
    };
    for (size_t i = 0; i < 3; ++i) {
      if (i != matters) {
        EXPECT_LT(bits(i), bits(matters)) << matters;
      }
    }
    const Result<Sized> less =
        types_for_size(header_, {*form, header_, 1 << 20}, options, maker_.get());
    EXPECT_EQ(less.status().code(), Code::kInvalidArgument);
  }
}

// QSF files may hold QSF's own types.
TEST_F(Weights, TypesOfQsfAreForQsfFiles) {
  const std::vector<TensorType> without = types_for(header_.tensors[0], {true, false});
  const std::vector<TensorType> with = types_for(header_.tensors[0], {true, true});
  EXPECT_EQ(with.size(), without.size() + 4);
  for (const TensorType type : {TensorType::kQSFT, TensorType::kQSF2, TensorType::kQSF4}) {
    EXPECT_EQ(std::ranges::count(without, type), 0);
    EXPECT_EQ(std::ranges::count(with, type), 1);
  }
}

TEST_F(Weights, QuantizedSourcesEqualAConversion) {
  std::vector<float> importance(256, 1);
  for (size_t i = 0; i < 256; i += 3) importance[i] = 20;
  for (const TensorType type : types_for(header_.tensors[0], {true, true})) {
    QuantizedSource made(*source_);
    std::vector<uint8_t> wanted;
    for (size_t i = 0; i < 2; ++i) {
      const std::vector<float>* by = i == 0 ? nullptr : &importance;
      const Result<gguf::Tensor> as = made.add(header_.tensors[i], type, by, 7);
      ASSERT_TRUE(as.ok());
      EXPECT_EQ(as->file, 7u);
      EXPECT_EQ(as->type, type);
      wanted.resize(static_cast<size_t>(as->offset));
      TensorReport report;
      ASSERT_TRUE(maker_
                      ->make(
                          header_.tensors[i], type, by,
                          [&](std::span<const uint8_t> piece) {
                            wanted.insert(wanted.end(), piece.begin(), piece.end());
                            return Status();
                          },
                          &report)
                      .ok());
    }
    wanted.resize(static_cast<size_t>(made.size()));
    for (const size_t step : {wanted.size(), size_t{1000}, size_t{97}}) {  // splits blocks
      std::vector<uint8_t> got(wanted.size());
      for (size_t at = 0; at < got.size(); at += step) {
        const size_t n = std::min(step, got.size() - at);
        ASSERT_TRUE(made.read(at, std::span(got).subspan(at, n)).ok());
      }
      EXPECT_EQ(got, wanted) << gguf::type_info(type)->name << " by " << step;
    }
    uint8_t beyond = 0;
    EXPECT_FALSE(made.read(made.size(), {&beyond, 1}).ok());
  }
}

}  // namespace
}  // namespace sluice::convert

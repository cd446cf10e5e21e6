// Mixtures of experts in a header: which rows of the file belong to each expert, optional tensors,
// and counts of experts that exceed the caps.
#include <gtest/gtest.h>

#include "gguf_builder.h"
#include "model/program.h"

namespace sluice::model {
namespace {

using test::GgufBuilder;

constexpr uint64_t kEmbd = 32, kFf = 16, kExperts = 6;

// A model with one mixture layer. All tensors have the same offset, which a header without weights
// may have. `keys` and `tensors` add what a test needs.
class Mixture {
 public:
  explicit Mixture(const char* arch = "deepseek") : arch_(arch) {
    b_.string("general.architecture", arch);
    number("context_length", 64).number("embedding_length", kEmbd).number("block_count", 1);
    number("feed_forward_length", 64).number("attention.head_count", 4);
    number("expert_feed_forward_length", kFf);
    f32("token_embd.weight", {kEmbd, 40}).f32("output_norm.weight", {kEmbd});
    for (const char* name : {"attn_norm", "ffn_norm"}) f32(layer(name), {kEmbd});
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"}) {
      f32(layer(name), {kEmbd, kEmbd});
    }
    f32(layer("ffn_gate_inp"), {kEmbd, kExperts});
    f32(layer("ffn_down_exps"), {kFf, kEmbd, kExperts});
  }
  static std::string layer(const std::string& name, const char* suffix = ".weight") {
    return "blk.0." + name + suffix;
  }
  template <typename T>
  Mixture& number(const std::string& key, T value) {
    if constexpr (std::is_same_v<T, uint64_t> || std::is_same_v<T, int>) {
      b_.number(arch_ + "." + key, static_cast<uint32_t>(value));
    } else {
      b_.number(arch_ + "." + key, value);
    }
    return *this;
  }
  Mixture& f32(const std::string& name, const std::vector<uint64_t>& ne) {
    uint64_t n = 4;
    for (const uint64_t d : ne) n *= d;
    b_.tensor_at(name, 0, ne, at_);
    at_ += (n + 31) / 32 * 32;
    return *this;
  }
  Mixture& counts(uint32_t experts = kExperts, uint32_t used = 2) {
    return number("expert_count", experts).number("expert_used_count", used);
  }
  Mixture& apart() {
    f32(layer("ffn_gate_exps"), {kEmbd, kFf, kExperts});
    return f32(layer("ffn_up_exps"), {kEmbd, kFf, kExperts});
  }
  Result<Program> build() {
    const std::vector<uint8_t> file = b_.build();
    gguf::Header header;
    const auto parsed = gguf::parse_header(file, file.size() + at_, &header);
    if (!parsed.ok()) return parsed.status();
    return build_program(header);
  }

 private:
  GgufBuilder b_;
  std::string arch_;
  uint64_t at_ = 0;
};

void expect_refused(Mixture& mixture, Code code, const char* word) {
  const Status status = mixture.build().status();
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
}

TEST(MoeProgram, FusedGateAndUpAreHalvesOfEachExpertsRows) {
  Mixture mixture;
  mixture.counts().f32(Mixture::layer("ffn_gate_up_exps"), {kEmbd, 2 * kFf, kExperts});
  const Result<Program> program = mixture.build();
  ASSERT_TRUE(program.ok()) << program.status().message();
  const Moe& moe = program->moes.at(0);
  ASSERT_EQ(moe.gate.size(), kExperts);
  const auto mat = [&](int32_t i) -> const Mat& { return program->mats[static_cast<size_t>(i)]; };
  const uint64_t first = mat(moe.gate[0]).offset;
  for (size_t e = 0; e < kExperts; ++e) {
    EXPECT_EQ(mat(moe.gate[e]).offset, first + e * 2 * kFf * kEmbd * 4);
    EXPECT_EQ(mat(moe.up[e]).offset, first + (2 * e + 1) * kFf * kEmbd * 4);
    EXPECT_EQ(mat(moe.up[e]).rows, int64_t{kFf});
    EXPECT_TRUE(mat(moe.up[e]).expert && mat(moe.gate[e]).expert && mat(moe.down[e]).expert);
  }
}

TEST(MoeProgram, OptionalTensorsAreUsed) {
  Mixture mixture;
  mixture.counts().apart().f32(Mixture::layer("exp_probs_b", ".bias"), {kExperts});
  mixture.f32(Mixture::layer("ffn_down_exps", ".scale"), {kExperts});
  mixture.f32(Mixture::layer("ffn_up_exps", ".bias"), {kFf, kExperts});
  mixture.number("expert_gating_func", 2).number("expert_weights_norm", true);
  mixture.number("expert_weights_scale", 2.5f);
  mixture.number("expert_group_count", 3).number("expert_group_used_count", 2);
  const Result<Program> program = mixture.build();
  ASSERT_TRUE(program.ok()) << program.status().message();
  const Moe& moe = program->moes.at(0);
  EXPECT_TRUE(moe.choice_bias >= 0 && moe.down_scale >= 0 && moe.up_bias >= 0);
  EXPECT_TRUE(moe.gate_bias < 0 && moe.down_bias < 0 && moe.up_scale < 0);
  EXPECT_EQ(moe.gating, Gating::kSigmoid);
  EXPECT_TRUE(moe.normalize);
  EXPECT_EQ(moe.weights_scale, 2.5f);
  EXPECT_EQ(moe.n_group, 3);
  EXPECT_EQ(moe.n_group_used, 2);
}

TEST(MoeProgram, ImpossibleCountsAreErrors) {
  expect_refused(Mixture().counts(5000).apart(), Code::kBadHeader, "expert_count");
  expect_refused(Mixture().counts(~0u).apart(), Code::kBadHeader, "expert_count");
  expect_refused(Mixture().counts(6, 7).apart(), Code::kBadHeader, "7 of 6 experts");
  expect_refused(Mixture().counts(6, 0).apart(), Code::kBadHeader, "0 of 6 experts");
  expect_refused(Mixture().apart(), Code::kBadHeader, "there are no experts");
  expect_refused(Mixture().counts(7).apart(), Code::kBadShape, "ffn_gate_inp");
  expect_refused(Mixture().counts().apart().number("expert_group_count", 4), Code::kBadHeader,
                 "groups");
  expect_refused(Mixture()
                     .counts(6, 3)
                     .apart()
                     .number("expert_group_count", 3)
                     .number("expert_group_used_count", 1),
                 Code::kBadHeader, "groups");
  expect_refused(Mixture().counts().apart().number("expert_gating_func", 4),
                 Code::kUnsupportedArchitecture, "expert_gating_func");
  expect_refused(Mixture().counts().apart().number("expert_feed_forward_length", 1u << 30),
                 Code::kBadHeader, "expert_feed_forward_length");
}

// A small header can claim a huge product of layers and experts.
TEST(MoeProgram, LayersTimesExpertsHasItsOwnCap) {
  GgufBuilder b;
  b.string("general.architecture", "deepseek");
  const auto number = [&b](const char* key, uint32_t n) {
    b.number(std::string("deepseek.") + key, n);
  };
  number("context_length", 64);
  number("embedding_length", kEmbd);
  number("block_count", 1024);
  number("feed_forward_length", 64);
  number("attention.head_count", 4);
  number("expert_count", 4096);
  number("expert_used_count", 2);
  const auto file = b.f32("token_embd.weight", {kEmbd, 40}).build();
  gguf::Header header;
  ASSERT_TRUE(gguf::parse_header(file, file.size(), &header).ok());
  const Status status = build_program(header).status();
  EXPECT_EQ(status.code(), Code::kBadHeader);
  EXPECT_NE(status.message().find("1024 layers of 4096 experts"), std::string::npos)
      << status.message();
}

TEST(MoeProgram, AScaleAndABiasMayBeTogether) {
  Mixture both;
  both.counts().apart().f32(Mixture::layer("ffn_down_exps", ".scale"), {kExperts});
  both.f32(Mixture::layer("ffn_down_exps", ".bias"), {kEmbd, kExperts});
  const Result<Program> program = both.build();
  ASSERT_TRUE(program.ok()) << program.status().message();
  EXPECT_TRUE(program->moes.at(0).down_scale >= 0 && program->moes.at(0).down_bias >= 0);
}

TEST(MoeProgram, UnsupportedOperationsAreErrors) {
  Mixture fused;
  fused.counts().f32(Mixture::layer("ffn_gate_up_exps"), {kEmbd, 2 * kFf, kExperts});
  fused.f32(Mixture::layer("ffn_gate_up_exps", ".bias"), {2 * kFf, kExperts});
  expect_refused(fused, Code::kUnsupportedArchitecture, "layer 0");
}

// Trailing layers that predict further tokens (MTP) take no part in a normal forward pass.
TEST(MoeProgram, MtpLayersAreNotRun) {
  GgufBuilder b;
  b.string("general.architecture", "bailingmoe2");
  const auto number = [&b](const char* key, uint32_t n) {
    b.number(std::string("bailingmoe2.") + key, n);
  };
  number("context_length", 64);
  number("embedding_length", kEmbd);
  number("block_count", 2);
  number("feed_forward_length", kFf);
  number("attention.head_count", 4);
  number("nextn_predict_layers", 1);
  b.f32("token_embd.weight", {kEmbd, 40}).f32("output_norm.weight", {kEmbd});
  b.f32("blk.0.attn_norm.weight", {kEmbd}).f32("blk.0.ffn_norm.weight", {kEmbd});
  b.f32("blk.0.attn_qkv.weight", {kEmbd, 3 * kEmbd});
  b.f32("blk.0.attn_q_norm.weight", {8}).f32("blk.0.attn_k_norm.weight", {8});
  b.f32("blk.0.attn_output.weight", {kEmbd, kEmbd});
  b.f32("blk.0.ffn_gate.weight", {kEmbd, kFf}).f32("blk.0.ffn_up.weight", {kEmbd, kFf});
  b.f32("blk.0.ffn_down.weight", {kFf, kEmbd}).f32("blk.1.nextn.eh_proj.weight", {kEmbd, kEmbd});
  const auto file = b.build();
  gguf::Header header;
  ASSERT_TRUE(gguf::parse_header(file, file.size(), &header).ok());
  const Result<Program> program = build_program(header);
  ASSERT_TRUE(program.ok()) << program.status().message();
  EXPECT_EQ(program->hp.n_layer, 1);
}

}  // namespace
}  // namespace sluice::model

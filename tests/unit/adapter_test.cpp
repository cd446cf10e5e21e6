// Reading adapter files, and binding adapters to a model with every reason for rejection. Nothing
// is computed here.
#include "adapter/adapter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "gguf_builder.h"
#include "hf_tiny_model.h"
#include "model/program.h"
#include "session/adapter_set.h"

namespace sluice::adapter {
namespace {

using test::GgufBuilder;

const std::string kQuery = "blk.0.attn_q.weight";

GgufBuilder gguf_start(const char* arch = "qwen3") {
  GgufBuilder b;
  b.string("general.architecture", arch).string("general.type", "adapter");
  b.string("adapter.type", "lora").number("adapter.lora.alpha", 8.0f);
  return b;
}

GgufBuilder& pair(GgufBuilder& b, const std::string& name, std::vector<uint64_t> a,
                  std::vector<uint64_t> ab) {
  return b.f32(name + ".lora_a", a).f32(name + ".lora_b", ab);
}

std::vector<uint8_t> query_file() {
  GgufBuilder b = gguf_start();
  return pair(b, kQuery, {8, 2}, {2, 8}).build();
}

Result<Adapter> parse(const std::vector<uint8_t>& file) {
  Adapter out;
  const auto parsed = parse_gguf(file, file.size(), &out);
  if (!parsed.ok()) return parsed.status();
  EXPECT_TRUE(parsed->done);
  return out;
}

void expect_refused(const Status& status, Code code, std::string_view word) {
  EXPECT_STREQ(code_name(status.code()), code_name(code)) << status.message();
  EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
}

void expect_refused(const GgufBuilder& b, Code code, std::string_view word) {
  expect_refused(parse(b.build()).status(), code, word);
}

TEST(Adapter, PairsAndScaleOfAGguf) {
  GgufBuilder b = gguf_start();
  pair(b, kQuery, {8, 2}, {2, 8});
  pair(b, std::string(kEmbedding), {4, 260}, {4, 8});
  const auto adapter = parse(b.build());
  ASSERT_TRUE(adapter.ok()) << adapter.status().message();
  ASSERT_EQ(adapter->pairs.size(), 2u);
  EXPECT_EQ(adapter->arch, "qwen3");
  EXPECT_EQ(adapter->pairs[0].name, kQuery);
  EXPECT_EQ(adapter->pairs[0].rank, 2);
  EXPECT_EQ(adapter->pairs[1].rank, 4);
  EXPECT_EQ(adapter->scale(2), 4.0);
  EXPECT_EQ(adapter->scale(4), 2.0);
  EXPECT_EQ(Adapter{}.scale(4), 1.0) << "without alpha";
}

TEST(Adapter, FilesThatAreNotPlainLoraAreRejected) {
  GgufBuilder model;
  model.string("general.architecture", "llama").f32("token_embd.weight", {8, 8});
  expect_refused(model, Code::kBadHeader, "not an adapter");
  GgufBuilder control;
  control.string("general.architecture", "llama").string("general.type", "adapter");
  control.string("adapter.type", "control_vector");
  expect_refused(control, Code::kUnsupportedArchitecture, "control_vector");
  GgufBuilder alora = gguf_start();
  alora.numbers<uint32_t>("adapter.alora.invocation_tokens", {1, 2});
  expect_refused(pair(alora, kQuery, {8, 2}, {2, 8}), Code::kUnsupportedArchitecture,
                 "adapter.alora.invocation_tokens");
  GgufBuilder norm = gguf_start();
  norm.f32("blk.0.attn_norm.weight", {8});
  expect_refused(norm, Code::kUnsupportedArchitecture, "blk.0.attn_norm.weight");
  expect_refused(gguf_start(), Code::kBadHeader, "no tensors");
  GgufBuilder alpha;
  alpha.string("general.architecture", "qwen3").string("general.type", "adapter");
  alpha.string("adapter.type", "lora").number("adapter.lora.alpha", INFINITY);
  expect_refused(pair(alpha, kQuery, {8, 2}, {2, 8}), Code::kBadHeader, "adapter.lora.alpha");
}

TEST(Adapter, InvalidPairsAreRejected) {
  for (const char* half : {".lora_a", ".lora_b"}) {
    GgufBuilder b = gguf_start();
    expect_refused(b.f32(kQuery + half, {2, 8}), Code::kBadHeader, kQuery + half);
  }
  const std::vector<uint64_t> shapes[][2] = {{{8, 2}, {3, 8}},
                                             {{8, 1025}, {1025, 8}},
                                             {{8, 2, 2}, {2, 8, 3}},
                                             {{8, 2, 1, 2}, {2, 8, 1, 2}}};
  for (const auto& [a, ab] : shapes) {
    GgufBuilder b = gguf_start();
    expect_refused(pair(b, kQuery, a, ab), Code::kBadShape, kQuery);
  }
  GgufBuilder quantized = gguf_start();
  quantized.tensor(kQuery + ".lora_a", 8, {32, 2}, std::vector<uint8_t>(68));
  expect_refused(quantized.f32(kQuery + ".lora_b", {2, 8}), Code::kUnsupportedType, kQuery);
}

TEST(Adapter, EveryTruncatedLengthAsksForMoreOrIsRejected) {
  const std::vector<uint8_t> file = query_file();
  for (size_t n = 0; n < file.size(); ++n) {
    const std::vector<uint8_t> part(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(n));
    Adapter out;
    const auto whole = parse_gguf(part, file.size(), &out);
    ASSERT_TRUE(whole.ok()) << n;
    EXPECT_TRUE(whole->done || (whole->need_bytes > n && whole->need_bytes <= file.size())) << n;
    EXPECT_FALSE(parse_gguf(part, n == 0 ? 1 : n, &out).ok()) << n;  // the file ends there
  }
}

// --- PEFT ----------------------------------------------------------------------------------------

const std::string kModule = "base_model.model.model.layers.0.self_attn.q_proj";

std::string peft_tensors(const std::string& module = kModule) {
  return test::SafetensorsBuilder()
      .bf16(module + ".lora_A.weight", {2, 8})
      .bf16(module + ".lora_B.weight", {8, 2})
      .build();
}

std::string peft_config(const std::string& more = "") {
  return R"({"peft_type":"LORA","r":2,"lora_alpha":8,"modules_to_save":null,"alpha_pattern":{})" +
         more + "}";
}

Result<Adapter> parse_both(const std::string& config, const std::string& tensors) {
  Adapter out;
  const auto parsed = parse_peft(config, hf::as_bytes(tensors), tensors.size(), &out);
  if (!parsed.ok()) return parsed.status();
  return out;
}

TEST(Peft, ModulesGetTheModelsTensorNames) {
  for (const char* wrapped : {"base_model.model.", ""}) {
    test::SafetensorsBuilder b;
    const std::string at = wrapped;
    b.bf16(at + "model.layers.1.mlp.down_proj.lora_A.default.weight", {2, 16});
    b.bf16(at + "model.layers.1.mlp.down_proj.lora_B.default.weight", {8, 2});
    b.bf16(at + "model.embed_tokens.lora_embedding_A", {2, 260});
    b.bf16(at + "model.embed_tokens.lora_embedding_B", {8, 2});
    const auto adapter = parse_both(peft_config(R"(,"use_rslora":true)"), b.build());
    ASSERT_TRUE(adapter.ok()) << adapter.status().message();
    ASSERT_EQ(adapter->pairs.size(), 2u);
    EXPECT_EQ(adapter->pairs[0].name, "blk.1.ffn_down.weight");
    EXPECT_EQ(adapter->pairs[1].name, kEmbedding);
    EXPECT_TRUE(adapter->hugging_face && adapter->pairs[1].turned && !adapter->pairs[0].turned);
    EXPECT_FLOAT_EQ(static_cast<float>(adapter->scale(4)), 4.0f);
  }
}

TEST(Peft, UnsupportedOptionsAreErrorsThatNameThem) {
  for (const char* more :
       {R"("use_dora":true)", R"("modules_to_save":["lm_head"])", R"("alpha_pattern":{"q":2})",
        R"("bias":"all")", R"("init_lora_weights":"pissa_niter_4")", R"("lora_bias":true)",
        R"("target_parameters":["mlp.experts.down_proj"])", R"("layer_replication":[[0,1]])"}) {
    const std::string key(more + 1, std::string_view(more).find(':') - 2);
    const auto refused = parse_both(
        R"({"peft_type":"LORA","lora_alpha":8,)" + std::string(more) + "}", peft_tensors());
    expect_refused(refused.status(), Code::kUnsupportedArchitecture, key);
  }
  expect_refused(parse_both(R"({"peft_type":"IA3"})", peft_tensors()).status(),
                 Code::kUnsupportedArchitecture, "IA3");
  expect_refused(parse_both(R"({"peft_type":"LORA"})", peft_tensors()).status(), Code::kBadHeader,
                 "lora_alpha");
  expect_refused(parse_both("[]", peft_tensors()).status(), Code::kBadHeader, "JSON");
  for (const char* name : {"base_model.model.model.layers.0.block_sparse_moe.w1",
                           "base_model.model.model.norm.0", ""}) {
    expect_refused(parse_both(peft_config(), peft_tensors(name)).status(),
                   Code::kUnsupportedArchitecture, std::string(name) + ".lora_A.weight");
  }
}

TEST(Peft, EveryTruncatedLengthAsksForMoreOrIsRejected) {
  const std::string file = peft_tensors(), config = peft_config();
  for (size_t n = 0; n < file.size(); ++n) {
    Adapter out;
    const std::vector<uint8_t> part(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(n));
    const auto whole = parse_peft(config, part, file.size(), &out);
    ASSERT_TRUE(whole.ok()) << n;
    EXPECT_TRUE(whole->done || whole->need_bytes > n) << n;
    EXPECT_FALSE(parse_peft(config, part, n == 0 ? 1 : n, &out).ok()) << n;
  }
  for (size_t n = 0; n < config.size(); ++n) {
    EXPECT_FALSE(parse_both(config.substr(0, n), file).ok()) << n;
  }
}

// --- binding to a model --------------------------------------------------------------------------

class Bind : public testing::Test {
 protected:
  void SetUp() override {
    auto described = model_.describe();
    ASSERT_TRUE(described.ok()) << described.status().message();
    hf_ = std::move(*described);
    auto program = model::build_program(hf_.header);
    ASSERT_TRUE(program.ok()) << program.status().message();
    program_ = std::move(*program);
  }
  Result<session::AdapterSet> bind(const std::vector<uint8_t>& file, float scale = 1,
                                   size_t times = 1) {
    auto adapter = parse(file);
    if (!adapter.ok()) return adapter.status();
    adapter_ = std::move(*adapter);
    file_ = file;
    const auto read = [this](uint64_t offset, std::span<uint8_t> out) -> Status {
      if (offset > file_.size() || out.size() > file_.size() - offset) {
        return error(Code::kTruncated, "beyond the file");
      }
      std::copy_n(file_.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
      return {};
    };
    sources_.assign(times, Source{&adapter_, scale, read});
    return session::AdapterSet::bind(program_, kernels::best(), sources_);
  }
  void refused(GgufBuilder& b, Code code, std::string_view word) {
    expect_refused(bind(b.build()).status(), code, word);
  }

  hf::TinyModel model_;
  hf::Model hf_;
  model::Program program_;
  Adapter adapter_;
  std::vector<uint8_t> file_;
  std::vector<Source> sources_;
};

TEST_F(Bind, MismatchesAreErrorsThatNameThem) {
  GgufBuilder rows = gguf_start(), cols = gguf_start(), slices = gguf_start();
  refused(pair(rows, kQuery, {8, 2}, {2, 9}), Code::kBadShape, kQuery);
  refused(pair(cols, kQuery, {9, 2}, {2, 8}), Code::kBadShape, kQuery);
  refused(pair(slices, kQuery, {8, 2, 2}, {2, 8, 2}), Code::kBadShape, kQuery);
  GgufBuilder tokens = gguf_start(), wide = gguf_start();
  refused(pair(tokens, std::string(kEmbedding), {2, 261}, {2, 8}), Code::kBadShape, "token_embd");
  refused(pair(wide, std::string(kEmbedding), {2, 260}, {2, 16}), Code::kBadShape, "token_embd");
  for (const char* name : {"blk.2.attn_q.weight", "blk.0.attn_norm.weight", "attn_q"}) {
    GgufBuilder b = gguf_start();
    refused(pair(b, name, {8, 2}, {2, 8}), Code::kMissingTensor, name);
  }
  GgufBuilder family = gguf_start("llama");
  refused(pair(family, kQuery, {8, 2}, {2, 8}), Code::kUnsupportedArchitecture, "llama");
  expect_refused(bind(query_file(), 1, kMaxAdapters + 1).status(), Code::kInvalidArgument, "17");
  expect_refused(bind(query_file(), NAN).status(), Code::kInvalidArgument, kQuery);
}

TEST_F(Bind, NeedsAreCountedAndScaleZeroNeedsNothing) {
  const auto one = bind(query_file()), off = bind(query_file(), 0), two = bind(query_file(), 1, 2);
  ASSERT_TRUE(one.ok() && off.ok() && two.ok());
  EXPECT_EQ(off->needs().bytes, 0u);
  EXPECT_EQ(off->needs().scratch, 0u);
  EXPECT_GE(one->needs().bytes, 32u * sizeof(float));
  EXPECT_GT(two->needs().bytes, one->needs().bytes);
}

TEST_F(Bind, LoadingSeparatesSetsAndRejectsNonFiniteValues) {
  const auto sum = [this](float scale) {
    auto set = bind(query_file(), scale);
    EXPECT_TRUE(set.ok() && set->load(kernels::best(), sources_).ok());
    return set->sum();
  };
  EXPECT_EQ(sum(0), 0u);
  EXPECT_NE(sum(1), 0u);
  EXPECT_EQ(sum(1), sum(1));
  EXPECT_NE(sum(1), sum(0.5f));
  std::vector<uint8_t> file = query_file();
  for (size_t i = file.size() - 4; i < file.size(); ++i) file[i] = 0xff;
  auto set = bind(file);
  ASSERT_TRUE(set.ok());
  expect_refused(set->load(kernels::best(), sources_), Code::kBadWeights, kQuery);
  set = bind(query_file());
  ASSERT_TRUE(set.ok());
  file_.resize(file_.size() - 1);
  EXPECT_EQ(set->load(kernels::best(), sources_).code(), Code::kTruncated);
}

}  // namespace
}  // namespace sluice::adapter

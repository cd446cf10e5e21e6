// The program builder on the headers of the families' fixtures. Each tensor in turn is removed,
// widened and given a type without a kernel; every time the error must name the tensor. Metadata
// that no family here implements must be an error that names the key.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "../file_contents.h"
#include "../paths.h"
#include "gguf_builder.h"
#include "model/program.h"

namespace sluice::model {
namespace {

using test::GgufBuilder;

std::vector<uint8_t> bytes_of(const std::filesystem::path& path) {
  return sluice::test::file_contents<std::vector<uint8_t>>(path);
}

std::vector<std::filesystem::path> fixtures() {
  std::vector<std::filesystem::path> out;
  for (const char* folder : {"families", "arch"}) {
    const auto at = std::filesystem::path(sluice::test::source_dir()) / "tests/data" / folder;
    for (const auto& entry : std::filesystem::directory_iterator(at)) {
      if (entry.path().extension() == ".gguf") out.push_back(entry.path());
    }
  }
  EXPECT_GT(out.size(), 20u);
  return out;
}

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> ends) {
  return std::any_of(ends.begin(), ends.end(), [&](auto end) { return name.ends_with(end); });
}

// Whether to test a tensor. Layers repeat with a period, so the first two are enough.
bool worth_a_try(std::string_view name) {
  return !name.starts_with("blk.") || name.starts_with("blk.0.") || name.starts_with("blk.1.");
}

// Tensors whose absence means something else: no bias, tied embeddings, plain RoPE, or another kind
// of block (whose own tensors are then missing, by name).
bool may_be_absent(std::string_view name) {
  return name == "output.weight" || name.starts_with("rope_f") || name.ends_with(".bias");
}
bool selects_a_form(std::string_view name) {
  return ends_with_any(name, {"attn_qkv.weight", "ffn_gate.weight", "ffn_gate_inp.weight",
                              "ffn_up_shexp.weight", "_exps.weight", "output_norm.weight",
                              "ffn_norm.weight", "attn_q_norm.weight", "attn_k_norm.weight"});
}

class EachTensor {
 public:
  explicit EachTensor(const std::filesystem::path& path) : file_(bytes_of(path)) {
    EXPECT_TRUE(gguf::parse_header(file_, file_.size(), &header_).ok()) << path;
  }
  template <typename Change>
  Status with(size_t tensor, Change&& change) {
    gguf::Header changed = header_;
    change(changed.tensors[tensor]);
    EXPECT_TRUE(gguf::index_tensors(&changed).ok());
    return build_program(changed).status();
  }
  [[nodiscard]] const gguf::Header& header() const { return header_; }

 private:
  std::vector<uint8_t> file_;
  gguf::Header header_;
};

TEST(Builder, AMissingTensorIsNamed) {
  for (const auto& path : fixtures()) {
    EachTensor each(path);
    ASSERT_TRUE(build_program(each.header()).ok()) << path;
    for (size_t i = 0; i < each.header().tensors.size(); ++i) {
      const std::string name(each.header().tensors[i].name);
      if (!worth_a_try(name)) continue;
      const Status status = each.with(i, [](gguf::Tensor& t) { t.name = "elsewhere"; });
      if (may_be_absent(name) || (selects_a_form(name) && status.ok())) continue;
      EXPECT_FALSE(status.ok()) << path << " without " << name;
      if (selects_a_form(name)) continue;
      EXPECT_EQ(status.code(), Code::kMissingTensor) << path << " without " << name;
      EXPECT_NE(status.message().find(name), std::string::npos) << status.message();
    }
  }
}

TEST(Builder, ATensorOfWrongShapeIsNamed) {
  for (const auto& path : fixtures()) {
    EachTensor each(path);
    for (size_t i = 0; i < each.header().tensors.size(); ++i) {
      const std::string name(each.header().tensors[i].name);
      if (!worth_a_try(name)) continue;
      for (const size_t side : {0, 1}) {
        const Status status = each.with(i, [side](gguf::Tensor& t) { t.ne[side] += 32; });
        // The embedding defines the vocabulary size, so only an output head can contradict it.
        const bool vocabulary = side == 1 && name == "token_embd.weight";
        const bool own_width = side == 1 && name.ends_with("ffn_up_shexp.weight");
        if (status.ok() && vocabulary) continue;
        EXPECT_EQ(status.code(), Code::kBadShape) << path << " " << name << " " << side;
        if (vocabulary || own_width) continue;
        EXPECT_NE(status.message().find(name), std::string::npos) << status.message();
      }
    }
  }
}

TEST(Builder, ATensorOfATypeWithoutAKernelIsNamed) {
  for (const auto& path : fixtures()) {
    EachTensor each(path);
    for (size_t i = 0; i < each.header().tensors.size(); ++i) {
      const std::string name(each.header().tensors[i].name);
      if (!worth_a_try(name)) continue;
      const Status status = each.with(i, [](gguf::Tensor& t) { t.type = gguf::TensorType::kI32; });
      EXPECT_EQ(status.code(), Code::kUnsupportedType) << path << " " << name;
      EXPECT_NE(status.message().find(name), std::string::npos) << status.message();
    }
  }
}

// A llama with one layer, plus what `add` adds.
Status with_key(void (*add)(GgufBuilder&), const char* arch = "llama") {
  GgufBuilder b;
  const auto number = [&](const char* key, uint32_t n) {
    b.number(std::string(arch) + "." + key, n);
  };
  b.string("general.architecture", arch);
  number("context_length", 64);
  number("embedding_length", 8);
  number("block_count", 1);
  number("feed_forward_length", 16);
  number("attention.head_count", 2);
  add(b);
  b.f32("token_embd.weight", {8, 32}).f32("output_norm.weight", {8});
  for (const char* name : {"attn_norm", "ffn_norm"}) {
    b.f32("blk.0." + std::string(name) + ".weight", {8});
  }
  for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"}) {
    b.f32("blk.0." + std::string(name) + ".weight", {8, 8});
  }
  b.f32("blk.0.ffn_gate.weight", {8, 16}).f32("blk.0.ffn_up.weight", {8, 16});
  b.f32("blk.0.ffn_down.weight", {16, 8});
  const auto file = b.build();
  gguf::Header header;
  const auto parsed = gguf::parse_header(file, file.size(), &header);
  return parsed.ok() ? build_program(header).status() : parsed.status();
}

#define REFUSED(key, ...)                                                        \
  {                                                                              \
    const Status s = with_key([](GgufBuilder& b) { b.__VA_ARGS__; });            \
    EXPECT_EQ(s.code(), Code::kUnsupportedArchitecture) << #__VA_ARGS__;         \
    EXPECT_NE(s.message().find("llama." key), std::string::npos) << s.message(); \
  }
#define TAKEN(...)                                                    \
  {                                                                   \
    const Status s = with_key([](GgufBuilder& b) { b.__VA_ARGS__; }); \
    EXPECT_TRUE(s.ok()) << s.message();                               \
  }

TEST(Builder, AnUnknownKeyThatChangesResultsIsAnError) {
  REFUSED("attention.temperature_scale", number("llama.attention.temperature_scale", 0.1f));
  REFUSED("attention.temperature_scale", number("llama.attention.temperature_scale", 1.0f));
  REFUSED("rope.scaling.yarn_log_multiplier",
          number("llama.rope.scaling.yarn_log_multiplier", 1.0f));
  REFUSED("attention.key_length_mla", number("llama.attention.key_length_mla", 64u));
  REFUSED("attention.clamp_kqv", number("llama.attention.clamp_kqv", 8.0f));
  REFUSED("attention.max_alibi_bias", number("llama.attention.max_alibi_bias", 8.0f));
  REFUSED("expert_gating_func", number("llama.expert_gating_func", 4u));
  REFUSED("nextn_predict_layers", number("llama.nextn_predict_layers", 1u));
  REFUSED("rope.freq_base_per_layer",
          numbers("llama.rope.freq_base_per_layer", std::vector<float>{0, 1}));
  REFUSED("attention.kind", string("llama.attention.kind", "linear"));
  REFUSED("attention.key_length_swa", number("llama.attention.key_length_swa", 4u));
  REFUSED("ssm.state_size", number("llama.ssm.state_size", 16u));
}

TEST(Builder, AKeyThatChangesNothingIsAccepted) {
  TAKEN(number("llama.vocab_size", 32u));
  TAKEN(string("llama.tensor_data_layout", "Meta AI original pth"));
  TAKEN(number("llama.use_parallel_residual", true));
  TAKEN(number("llama.pooling_type", 3u));
  TAKEN(strings("llama.classifier.output_labels", {"yes", "no"}));
  TAKEN(number("llama.attention.causal", true));
  TAKEN(number("llama.attention.key_length_mla", 0u));
  TAKEN(number("llama.attention.clamp_kqv", 0.0f));
  TAKEN(number("llama.expert_shared_count", 1u));
  TAKEN(number("llama.expert_gating_func", 1u));
  TAKEN(number("llama.expert_weights_norm", true));
  TAKEN(number("llama.nextn_predict_layers", 0u));
  TAKEN(numbers("llama.rope.dimension_sections", std::vector<uint32_t>{1, 1, 0, 0}));
  TAKEN(number("llama.rope.scaling.factor", 2.0f).number("llama.rope.scale_linear", 2.0f));
  TAKEN(number("llama.rope.freq_base", 5e5f).number("llama.rope.freq_base_swa", 1e4f));
  TAKEN(number("llama.attention.key_length", 4u).number("llama.attention.key_length_swa", 4u));
  TAKEN(numbers("llama.attention.shared_layers", std::vector<uint32_t>{}));
  TAKEN(string("llama.vendor.note", "anything").number("llama.vision.block_count", 27u));
  TAKEN(number("other.attention.causal", false));
}

// Keys that only some families implement.
TEST(Builder, AKeyOfSomeFamiliesIsAcceptedByThose) {
  const auto clamp = [](GgufBuilder& b) { b.number("olmo.attention.clamp_kqv", 8.0f); };
  EXPECT_TRUE(with_key(clamp, "olmo").ok());
  const auto alibi = [](GgufBuilder& b) { b.number("xverse.attention.max_alibi_bias", 8.0f); };
  EXPECT_EQ(with_key(alibi, "xverse").code(), Code::kUnsupportedArchitecture);
  const auto act = [](GgufBuilder& b) { b.string("xverse.hidden_activation", "gelu"); };
  EXPECT_EQ(with_key(act, "xverse").code(), Code::kUnsupportedArchitecture);
  const auto negative = [](GgufBuilder& b) { b.number("olmo.attention.clamp_kqv", -1.0f); };
  EXPECT_EQ(with_key(negative, "olmo").code(), Code::kBadHeader);
}

// One scale factor for all weights of a matrix, in any family.
TEST(Builder, AMatrixMayHaveOneScale) {
  EXPECT_TRUE(with_key([](GgufBuilder& b) { b.f32("blk.0.attn_q.scale", {1}); }).ok());
  const Status two = with_key([](GgufBuilder& b) { b.f32("blk.0.attn_q.scale", {2}); });
  EXPECT_EQ(two.code(), Code::kBadShape) << two.message();
  const Status both = with_key(
      [](GgufBuilder& b) { b.f32("blk.0.attn_q.scale", {1}).f32("blk.0.attn_q.bias", {8}); });
  EXPECT_TRUE(both.ok()) << both.message();
}

TEST(Builder, WindowsByLayerMustHaveAPeriod) {
  const auto gemma3 = [](const std::vector<uint8_t>& local) {
    EachTensor each(std::filesystem::path(sluice::test::source_dir()) /
                    "tests/data/families/gemma3-scaled.gguf");
    gguf::Header header = each.header();
    gguf::KeyValue kv;
    kv.key = "gemma3.attention.sliding_window_pattern";
    kv.value = {gguf::ValueType::kArray, gguf::ValueType::kBool, local.size(), local};
    header.metadata.push_back(kv);
    const auto program = build_program(header);
    if (!program.ok()) return std::string(code_name(program.status().code()));
    std::string out;
    for (const Op& op : program->ops) {
      const auto* attention = op.get<AttentionOp>();
      if (attention != nullptr) out += attention->window > 0 ? 'l' : 'g';
    }
    return out;
  };
  EXPECT_EQ(gemma3({1, 1, 0, 1, 1, 0, 1}), "llgllgl");
  EXPECT_EQ(gemma3({1, 0, 1, 0, 1, 0, 1}), "lglglgl");
  EXPECT_EQ(gemma3({0, 0, 0, 0, 0, 0, 0}), "ggggggg");
  EXPECT_EQ(gemma3({1, 1, 1, 1, 1, 1, 1}), "lllllll");
  EXPECT_EQ(gemma3({0, 1, 1, 1, 1, 1, 1}), "UNSUPPORTED_ARCHITECTURE");
}

}  // namespace
}  // namespace sluice::model

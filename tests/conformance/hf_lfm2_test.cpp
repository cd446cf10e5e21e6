// LFM2 and LFM2-MoE checkpoints: a GGUF file's tensors and metadata under the names and keys that
// transformers uses, every expert a tensor of its own. Logits are bit-identical.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "fixtures_util.h"
#include "tests/unit/hf_directory.h"

namespace sluice::test {
namespace {

using nlohmann::json;

std::string hf_name(std::string name) {
  constexpr std::array<std::pair<const char*, const char*>, 16> kParts = {{
      {"token_embd.", "model.embed_tokens."},
      {"token_embd_norm.", "model.embedding_norm."},
      {"attn_norm.", "operator_norm."},
      {"attn_q.", "self_attn.q_proj."},
      {"attn_k.", "self_attn.k_proj."},
      {"attn_v.", "self_attn.v_proj."},
      {"attn_output.", "self_attn.out_proj."},
      {"attn_q_norm.", "self_attn.q_layernorm."},
      {"attn_k_norm.", "self_attn.k_layernorm."},
      {"shortconv.", "conv."},
      {"ffn_gate.", "feed_forward.w1."},
      {"ffn_down.", "feed_forward.w2."},
      {"ffn_up.", "feed_forward.w3."},
      {"ffn_gate_inp.", "feed_forward.gate."},
      {"exp_probs_b.bias", "feed_forward.expert_bias"},
      {"blk.", "model.layers."},
  }};
  for (const auto& [ours, theirs] : kParts) {
    const size_t at = name.find(ours);
    if (at == 0 || (at != std::string::npos && name[at - 1] == '.')) {
      name.replace(at, std::strlen(ours), theirs);
    }
  }
  return name;
}

// Writes a tensor of experts as one tensor per expert.
void add_experts(const gguf::Tensor& t, const std::string& name, const std::string& data,
                 const char* dtype, SafetensorsBuilder* out) {
  const std::string layer = name.substr(0, name.rfind("ffn_"));
  const std::string part = name.find("gate") != std::string::npos   ? "w1"
                           : name.find("down") != std::string::npos ? "w2"
                                                                    : "w3";
  const size_t bytes = data.size() / t.ne[2];
  for (uint64_t e = 0; e < t.ne[2]; ++e) {
    std::string own = layer;
    own.replace(0, 4, "model.layers.").append("feed_forward.experts.");
    own.append(std::to_string(e)).append(".").append(part).append(".weight");
    out->tensor(own, dtype, {t.ne[1], t.ne[0]}, data.substr(e * bytes, bytes));
  }
}

class HfLfm2 : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string shared = shared_folder("families");
    if (shared.empty()) GTEST_SKIP() << "../shared/fixtures/families is absent";
    gguf_ = shared + "/" + GetParam() + ".gguf";
    std::string name = (std::filesystem::temp_directory_path() / "sluice-lfm2-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    write("tokenizer.json", byte_level_tokenizer());
    write("model.safetensors", weights());
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }
  void write(const char* name, const std::string& content) {
    std::ofstream(folder_ / name, std::ios::binary) << content;
  }
  std::string weights() {
    const auto header = native::read_header(gguf_, {});
    EXPECT_TRUE(header.ok());
    std::ifstream in(gguf_, std::ios::binary);
    SafetensorsBuilder out;
    for (const gguf::Tensor& t : header->header.tensors) {
      const std::string name(t.name);
      std::string data(t.bytes, '\0');
      in.seekg(static_cast<std::streamoff>(t.offset));
      in.read(data.data(), static_cast<std::streamsize>(data.size()));
      const char* dtype = t.type == gguf::TensorType::kF32 ? "F32" : "F16";
      std::vector<uint64_t> shape;
      for (uint32_t i = t.n_dims; i-- > 0;) shape.push_back(t.ne[i]);
      if (name.find("shortconv.conv") != std::string::npos) shape.insert(shape.begin() + 1, 1);
      if (name.find("_exps") != std::string::npos) {
        add_experts(t, name, data, dtype, &out);
      } else {
        out.tensor(hf_name(name), dtype, shape, data);
      }
    }
    return out.build();
  }
  static json config() {
    const bool mixture = GetParam() == std::string("lfm2moe");
    json c = {{"model_type", mixture ? "lfm2_moe" : "lfm2"},
              {"vocab_size", 280},
              {"max_position_embeddings", 512},
              {"num_attention_heads", 4},
              {"norm_eps", 9.999999747378752e-06},
              {"conv_L_cache", 3}};
    if (mixture) {
      c.update(json{{"hidden_size", 64},
                    {"num_hidden_layers", 4},
                    {"intermediate_size", 96},
                    {"moe_intermediate_size", 32},
                    {"num_experts", 4},
                    {"num_experts_per_tok", 2},
                    {"num_key_value_heads", 2},
                    {"layer_types", {"conv", "conv", "full_attention", "conv"}}});
    } else {
      c.update(json{{"hidden_size", 32},
                    {"num_hidden_layers", 3},
                    {"block_ff_dim", 190},  // two thirds, rounded up to a multiple
                    {"block_multiple_of", 64},
                    {"num_key_value_heads", 1},
                    {"full_attn_idxs", json::array({1})}});
    }
    return c;
  }
  std::vector<float> logits(const std::string& path, uint64_t budget) {
    session::EngineOptions options;
    options.n_ctx = 16;
    options.n_threads = 1;
    options.memory_budget = budget;
    Opened opened = open_model(path, options);
    if (opened.session == nullptr) return {};
    return all_logits(opened, {1, 5, 9, 40, 70, 101, 200, 3}, 1);
  }
  Status opens() { return native::read_header(folder_.string(), {}).status(); }

  std::string gguf_;
  std::filesystem::path folder_;
};

TEST_P(HfLfm2, EqualsTheGgufFile) {
  write("config.json", config().dump());
  const std::vector<float> expected = logits(gguf_, 0);
  ASSERT_EQ(expected.size(), size_t{8 * 280});
  EXPECT_EQ(logits(folder_.string(), 0), expected);
  session::EngineOptions options;
  options.n_ctx = 16;
  options.n_threads = 1;
  EXPECT_EQ(logits(folder_.string(), smallest_budget(folder_.string(), options)), expected);
}

TEST_P(HfLfm2, ErrorsNameWhatIsUnsupported) {
  const auto refused = [&](const json& change, const char* word) {
    json c = config();
    c.update(change);
    write("config.json", c.dump());
    const Status status = opens();
    EXPECT_FALSE(status.ok()) << word;
    EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
  };
  refused({{"conv_bias", true}}, "conv_bias");
  refused({{"layer_types", {"conv", "mamba", "conv"}}}, "layer_types");
  refused({{"full_attn_idxs", json::array({-1})}, {"layer_types", {1, 2}}}, "layer_types");
  refused({{"intermediate_size", 0}, {"block_ff_dim", 0}}, "intermediate_size");
  refused({{"num_hidden_layers", 1 << 20}}, "num_hidden_layers");
}

INSTANTIATE_TEST_SUITE_P(Families, HfLfm2, testing::Values("lfm2", "lfm2moe"));

}  // namespace
}  // namespace sluice::test

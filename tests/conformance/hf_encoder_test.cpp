// Encoder checkpoints: a fixture's tensors, stored as transformers and sentence-transformers do,
// give the same embeddings as the GGUF file, pooled as 1_Pooling/config.json requires.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "embed_util.h"
#include "tests/unit/hf_directory.h"

namespace sluice::test {
namespace {

using nlohmann::json;

struct EncoderCase {
  const char* name;
  const char* fixture;
  std::map<std::string, std::string> names;
  json config;
  const char* pooling = "";  // the pooling key that is true
  std::string layers = "encoder.layer.", prefix = "";
  uint64_t padding = 0;  // rows before the positions
  bool gemma = false;    // norms are stored as w - 1, and Dense modules follow
};

std::map<std::string, std::string> bert_names(bool roberta) {
  return {{"token_embd", "embeddings.word_embeddings"},
          {"position_embd", "embeddings.position_embeddings"},
          {"token_types", "embeddings.token_type_embeddings"},
          {"token_embd_norm", "embeddings.LayerNorm"},
          {"cls", roberta ? "classifier.dense" : "pooler.dense"},
          {"cls.output", roberta ? "classifier.out_proj" : "classifier"},
          {"attn_q", "attention.self.query"},
          {"attn_k", "attention.self.key"},
          {"attn_v", "attention.self.value"},
          {"attn_output", "attention.output.dense"},
          {"attn_output_norm", "attention.output.LayerNorm"},
          {"ffn_up", "intermediate.dense"},
          {"ffn_down", "output.dense"},
          {"layer_output_norm", "output.LayerNorm"}};
}

json bert_config(const char* type, int positions) {
  return {{"model_type", type},
          {"vocab_size", 280},
          {"hidden_size", 64},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"intermediate_size", 96},
          {"hidden_act", "gelu"},
          {"max_position_embeddings", positions},
          {"layer_norm_eps", 9.999999747378752e-06}};
}

json ranking(json config, const char* architecture) {
  config["architectures"] = {architecture};
  return config;
}

EncoderCase gemma() {
  return {"gemma",
          "gemma-embedding-dense",
          {{"token_embd", "embed_tokens"},
           {"output_norm", "norm"},
           {"attn_norm", "input_layernorm"},
           {"attn_q", "self_attn.q_proj"},
           {"attn_k", "self_attn.k_proj"},
           {"attn_v", "self_attn.v_proj"},
           {"attn_output", "self_attn.o_proj"},
           {"attn_q_norm", "self_attn.q_norm"},
           {"attn_k_norm", "self_attn.k_norm"},
           {"post_attention_norm", "post_attention_layernorm"},
           {"ffn_norm", "pre_feedforward_layernorm"},
           {"ffn_gate", "mlp.gate_proj"},
           {"ffn_up", "mlp.up_proj"},
           {"ffn_down", "mlp.down_proj"},
           {"post_ffw_norm", "post_feedforward_layernorm"}},
          {{"model_type", "gemma3_text"},
           {"use_bidirectional_attention", true},
           {"vocab_size", 280},
           {"hidden_size", 64},
           {"num_hidden_layers", 3},
           {"num_attention_heads", 4},
           {"num_key_value_heads", 1},
           {"head_dim", 32},
           {"intermediate_size", 96},
           {"max_position_embeddings", 512},
           {"rms_norm_eps", 9.999999747378752e-06},
           {"hidden_activation", "gelu_pytorch_tanh"},
           {"query_pre_attn_scalar", 32},
           {"sliding_window", 12},
           {"layer_types", {"sliding_attention", "sliding_attention", "full_attention"}}},
          "pooling_mode_mean_tokens",
          "layers.",
          "",
          0,
          true};
}

std::vector<EncoderCase> encoder_cases() {
  const char* cls = "pooling_mode_cls_token";
  const char* mean = "pooling_mode_mean_tokens";
  json nomic = {{"model_type", "nomic_bert"},
                {"vocab_size", 280},
                {"n_embd", 64},
                {"n_layer", 2},
                {"n_head", 4},
                {"n_inner", 96},
                {"n_positions", 512},
                {"rotary_emb_base", 1000},
                {"rotary_emb_fraction", 1.0},
                {"activation_function", "swiglu"},
                {"rotary_scaling_factor", nullptr},
                {"causal", false},
                {"layer_norm_epsilon", 9.999999747378752e-06}};
  json modern = {{"model_type", "modernbert"},
                 {"vocab_size", 280},
                 {"hidden_size", 64},
                 {"num_hidden_layers", 4},
                 {"num_attention_heads", 4},
                 {"intermediate_size", 96},
                 {"max_position_embeddings", 512},
                 {"norm_eps", 9.999999747378752e-06},
                 {"global_rope_theta", 160000},
                 {"local_rope_theta", 10000},
                 {"local_attention", 12},
                 {"global_attn_every_n_layers", 3},
                 {"hidden_activation", "gelu"}};
  return {
      {"bert_cls", "bert-cls", bert_names(false), bert_config("bert", 64), cls},
      {"bert_mean", "bert-mean", bert_names(false), bert_config("bert", 64), mean, "encoder.layer.",
       "bert."},
      {"bert_rank", "bert-rank", bert_names(false),
       ranking(bert_config("bert", 64), "BertForSequenceClassification"), ""},
      {"xlm_roberta", "bert-cls", bert_names(true), bert_config("xlm-roberta", 66), cls,
       "encoder.layer.", "roberta.", 2},
      {"xlm_roberta_rank", "bert-rank", bert_names(true),
       ranking(bert_config("xlm-roberta", 66), "XLMRobertaForSequenceClassification"), "",
       "encoder.layer.", "", 2},
      {"nomic",
       "nomic-bert",
       {{"token_embd", "embeddings.word_embeddings"},
        {"token_types", "embeddings.token_type_embeddings"},
        {"token_embd_norm", "emb_ln"},
        {"attn_qkv", "attn.Wqkv"},
        {"attn_output", "attn.out_proj"},
        {"attn_output_norm", "norm1"},
        {"ffn_up", "mlp.fc11"},
        {"ffn_gate", "mlp.fc12"},
        {"ffn_down", "mlp.fc2"},
        {"layer_output_norm", "norm2"}},
       nomic,
       mean,
       "encoder.layers."},
      {"modern",
       "modern-bert",
       {{"token_embd", "embeddings.tok_embeddings"},
        {"token_embd_norm", "embeddings.norm"},
        {"output_norm", "final_norm"},
        {"attn_norm", "attn_norm"},
        {"attn_qkv", "attn.Wqkv"},
        {"attn_output", "attn.Wo"},
        {"ffn_norm", "mlp_norm"},
        {"ffn_up", "mlp.Wi"},
        {"ffn_down", "mlp.Wo"}},
       modern,
       cls,
       "layers.",
       "model."},
      gemma(),
  };
}

class HfEncoder : public testing::TestWithParam<EncoderCase> {
 protected:
  void SetUp() override {
    const std::string shared = shared_folder("embeddings");
    if (shared.empty()) GTEST_SKIP() << "../shared/fixtures/embeddings is absent";
    const EncoderCase& c = GetParam();
    gguf_ = shared + "/" + c.fixture + ".gguf";
    std::string name = (std::filesystem::temp_directory_path() / "sluice-encoder-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    for (const char* one : {"1_Pooling", "2_Dense", "3_Dense"}) {
      std::filesystem::create_directory(folder_ / one);
    }
    write("tokenizer.json", byte_level_tokenizer());
    write("config.json", c.config.dump());
    write("model.safetensors", weights());
    if (*c.pooling == '\0') return;
    write("modules.json",
          c.gemma ? modules({"2_Dense", "3_Dense", "4_Normalize"}) : modules({"2_Normalize"}));
    write("1_Pooling/config.json", json{{"word_embedding_dimension", 64},
                                        {"pooling_mode_max_tokens", false},
                                        {c.pooling, true}}
                                       .dump());
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }
  // modules.json: the transformer, its pooling, and modules whose folder names end in their kind.
  static std::string modules(std::vector<std::string> more) {
    const std::string kind = "sentence_transformers.models.";
    json out = {{{"idx", 0}, {"path", ""}, {"type", kind + "Transformer"}}};
    more.insert(more.begin(), "1_Pooling");
    for (const std::string& path : more) {
      out.push_back({{"path", path}, {"type", kind + path.substr(path.rfind('_') + 1)}});
    }
    return out.dump();
  }
  static json dense(int in, int out) {
    return {{"in_features", in},
            {"out_features", out},
            {"bias", false},
            {"activation_function", "torch.nn.modules.linear.Identity"}};
  }
  void write(const char* name, const std::string& content) {
    std::ofstream(folder_ / name, std::ios::binary) << content;
  }
  std::string weights() {
    const EncoderCase& c = GetParam();
    const auto header = native::read_header(gguf_, {});
    EXPECT_TRUE(header.ok()) << header.status().message();
    if (!header.ok()) return {};
    std::ifstream in(gguf_, std::ios::binary);
    SafetensorsBuilder out;
    for (const gguf::Tensor& t : header->header.tensors) {
      std::string part(t.name), at;
      if (part.starts_with("blk.")) {
        const size_t dot = part.find('.', 4);
        at = c.layers + part.substr(4, dot - 3);
        part = part.substr(dot + 1);
      }
      const std::string ending = part.substr(part.rfind('.'));
      part.resize(part.rfind('.'));
      std::string data(t.bytes, '\0');
      in.seekg(static_cast<std::streamoff>(t.offset));
      in.read(data.data(), static_cast<std::streamsize>(data.size()));
      std::vector<uint64_t> shape;
      for (uint32_t i = t.n_dims; i-- > 0;) shape.push_back(t.ne[i]);
      const char* dtype = t.type == gguf::TensorType::kF32 ? "F32" : "F16";
      if (part.starts_with("dense_")) {
        const std::string folder = part.substr(6) + "_Dense/";
        dense_[folder].tensor("linear.weight", dtype, shape, data);
        write((folder + "model.safetensors").c_str(), dense_[folder].build());
        write((folder + "config.json").c_str(),
              dense(static_cast<int>(shape[1]), static_cast<int>(shape[0])).dump());
        continue;
      }
      if (c.gemma && part.ends_with("_norm")) {
        for (size_t i = 0; i < data.size(); i += sizeof(float)) {
          float value;
          std::memcpy(&value, &data[i], sizeof value);
          value -= 1;
          std::memcpy(&data[i], &value, sizeof value);
        }
      }
      if (part == "attn_qkv" && !c.names.contains(part)) {  // fused only in the fixture
        shape[0] /= 3;
        const size_t n = data.size() / 3;
        size_t begin = 0;
        for (const char* one : {"attn_q", "attn_k", "attn_v"}) {
          out.tensor(c.prefix + at + c.names.at(one) + ending, dtype, shape, data.substr(begin, n));
          begin += n;
        }
        continue;
      }
      EXPECT_TRUE(c.names.contains(part)) << t.name;
      if (!c.names.contains(part)) continue;
      if (part == "position_embd") {
        data.insert(0, c.padding * data.size() / shape[0], '\x3c');
        shape[0] += c.padding;
      }
      if (part == "cls.output" && ending == ".weight" && shape.size() == 1) {
        shape.insert(shape.begin(), 1);
      }
      const bool head = part == "cls.output" || (part == "cls" && c.padding > 0);
      // Older BERT checkpoints name the weights of norms gamma and beta.
      const bool old = c.prefix == "bert." && part.ends_with("_norm");
      out.tensor((head ? "" : c.prefix) + at + c.names.at(part) +
                     (!old                  ? ending
                      : ending == ".weight" ? ".gamma"
                                            : ".beta"),
                 dtype, shape, data);
    }
    return out.build();
  }
  static session::EngineOptions options() {
    session::EngineOptions o;
    o.n_ctx = 32;
    o.n_threads = 1;
    return o;
  }
  static std::vector<float> results(const std::string& path, uint64_t budget) {
    session::EngineOptions o = options();
    o.memory_budget = budget;
    Opened opened = open_model(path, o);
    if (opened.session == nullptr) return {};
    return embed(opened, {{2, 40, 7, 99, 40, 8, 101, 3}, {2, 9, 3}}, {});
  }
  void refused(const char* file, const std::string& content, const char* word) {
    write(file, content);
    const Status status = native::read_header(folder_.string(), {}).status();
    EXPECT_FALSE(status.ok()) << word;
    EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
  }

  std::string gguf_;
  std::filesystem::path folder_;
  std::map<std::string, SafetensorsBuilder> dense_;
};

TEST_P(HfEncoder, EqualsTheGgufFile) {
  const std::vector<float> expected = results(gguf_, 0);
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(results(folder_.string(), 0), expected);
  EXPECT_EQ(results(folder_.string(), smallest_budget(folder_.string(), options())), expected);
}

// Without this llama.cpp rejects a file converted from such a checkpoint.
TEST_P(HfEncoder, WritesTheNumberOfTokenTypes) {
  const auto header = native::read_header(folder_.string(), {});
  ASSERT_TRUE(header.ok()) << header.status().message();
  const bool typed = GetParam().names.contains("token_types");
  EXPECT_EQ(header->header.get_u64("tokenizer.ggml.token_type_count").has_value(), typed);
}

TEST_P(HfEncoder, ErrorsNameWhatIsUnsupported) {
  refused("modules.json", modules({"2_CNN"}), "CNN");
  write("modules.json", modules({}));
  refused("1_Pooling/config.json", json{{"pooling_mode_max_tokens", true}}.dump(), "max_tokens");
  refused("1_Pooling/config.json",
          json{{"pooling_mode_mean_tokens", true}, {"pooling_mode_cls_token", true}}.dump(),
          "more than one");
  refused("1_Pooling/config.json", "[]", "1_Pooling");
  std::filesystem::remove(folder_ / "modules.json");
  json c = GetParam().config;
  c["vocab_size"] = "many";
  refused("config.json", c.dump(), "vocab_size");
}

INSTANTIATE_TEST_SUITE_P(Files, HfEncoder, testing::ValuesIn(encoder_cases()),
                         [](const auto& info) { return info.param.name; });

using HfDense = HfEncoder;

TEST_P(HfDense, AddsABias) {
  const auto raw = [&] {
    Opened opened = open_model(folder_.string(), options());
    if (opened.session == nullptr) return std::vector<float>();
    embed::Options as_they_are;
    as_they_are.normalize = false;
    return embed(opened, {{2, 9, 3}}, as_they_are);
  };
  const std::vector<float> without = raw();
  json config = dense(128, 64);
  config["bias"] = true;
  write("3_Dense/config.json", config.dump());
  std::vector<float> bias(64);
  for (size_t i = 0; i < bias.size(); i++) bias[i] = static_cast<float>(i) - 20;
  const std::string bytes(reinterpret_cast<const char*>(bias.data()), bias.size() * sizeof(float));
  write("3_Dense/model.safetensors",
        dense_["3_Dense/"].tensor("linear.bias", "F32", {64}, bytes).build());
  const std::vector<float> with = raw();
  ASSERT_EQ(with.size(), bias.size());
  for (size_t i = 0; i < bias.size(); i++) EXPECT_NEAR(with[i], without[i] + bias[i], 1e-4) << i;
  refused("3_Dense/config.json", dense(128, 64).dump(), "linear.bias");
}

TEST_P(HfDense, ErrorsNameWhatIsUnsupported) {
  refused("modules.json", modules({"2_Dense", "3_Normalize", "4_Dense"}), "Dense");
  refused("modules.json", modules({"2_Dense", "3_Dense", "4_Dense"}), "4_Dense");
  refused("modules.json", modules({"../2_Dense"}), "../2_Dense");
  refused("modules.json", modules({"9_Dense"}), "9_Dense/model.safetensors");
  write("modules.json", modules({"2_Dense", "3_Dense"}));
  const std::pair<const char*, json> wrong[] = {
      {"activation_function", "torch.nn.modules.activation.Tanh"},
      {"module_input_name", "token_embeddings"},
      {"in_features", 63},
      {"out_features", -1},
      {"bias", true},
      {"steps", 2}};
  for (const auto& [key, value] : wrong) {
    json config = dense(64, 128);
    config[key] = value;
    refused("2_Dense/config.json", config.dump(), "2_Dense");
  }
  refused("2_Dense/config.json", "[]", "2_Dense/config.json");
  std::filesystem::remove(folder_ / "2_Dense/config.json");
  refused("modules.json", modules({"2_Dense"}), "2_Dense/config.json is missing");
}

INSTANTIATE_TEST_SUITE_P(Files, HfDense, testing::Values(gemma()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace sluice::test

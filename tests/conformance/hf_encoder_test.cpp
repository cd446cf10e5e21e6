// Encoders as checkpoints: the tensors of a fixture as transformers and sentence-transformers store
// them give the embeddings, pooled as 1_Pooling/config.json says, that the GGUF file gives.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "embed_util.h"
#include "tests/unit/hf_directory.h"

namespace sluice::test {
namespace {

using nlohmann::json;

struct Case {
  const char* name;
  const char* fixture;
  std::map<std::string, std::string> names;
  json config;
  const char* pooling = "";  // the key that is true
  std::string layers = "encoder.layer.", prefix = "";
  uint64_t padding = 0;  // rows before the positions'
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

std::vector<Case> cases() {
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
  };
}

class HfEncoder : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const std::string shared = shared_folder("embeddings");
    if (shared.empty()) GTEST_SKIP() << "../shared/fixtures/embeddings is absent";
    const Case& c = GetParam();
    gguf_ = shared + "/" + c.fixture + ".gguf";
    std::string name = (std::filesystem::temp_directory_path() / "sluice-encoder-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    std::filesystem::create_directory(folder_ / "1_Pooling");
    write("tokenizer.json", byte_level_tokenizer());
    write("config.json", c.config.dump());
    write("model.safetensors", weights());
    if (*c.pooling == '\0') return;
    write("modules.json", modules("Normalize"));
    write("1_Pooling/config.json", json{{"word_embedding_dimension", 64},
                                        {"pooling_mode_max_tokens", false},
                                        {c.pooling, true}}
                                       .dump());
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }
  static std::string modules(const std::string& last) {
    const std::string kind = "sentence_transformers.models.";
    return json{{{"idx", 0}, {"path", ""}, {"type", kind + "Transformer"}},
                {{"idx", 1}, {"path", "1_Pooling"}, {"type", kind + "Pooling"}},
                {{"idx", 2}, {"path", "2_" + last}, {"type", kind + last}}}
        .dump();
  }
  void write(const char* name, const std::string& content) {
    std::ofstream(folder_ / name, std::ios::binary) << content;
  }
  std::string weights() {
    const Case& c = GetParam();
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
      if (part == "attn_qkv" && !c.names.contains(part)) {  // joined in the fixture alone
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
      // As the older ones of BERT's checkpoints have norms' weights.
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
};

TEST_P(HfEncoder, GivesWhatTheGgufFileDoes) {
  const std::vector<float> expected = results(gguf_, 0);
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(results(folder_.string(), 0), expected);
  EXPECT_EQ(results(folder_.string(), smallest_budget(folder_.string(), options())), expected);
}

TEST_P(HfEncoder, NamesWhatItDoesNotKnow) {
  refused("modules.json", modules("Dense"), "Dense");
  write("modules.json", modules("Normalize"));
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

INSTANTIATE_TEST_SUITE_P(Files, HfEncoder, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace sluice::test

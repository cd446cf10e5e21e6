// Hugging Face directories as headers: exact names, shapes and metadata for each family, the
// tokenizer's recognition, and typed errors for everything hostile.
#include "gguf/safetensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>

#include "gguf/hf_config.h"
#include "hf_directory.h"
#include "tokenizer/tokenizer.h"

namespace sluice::gguf {
namespace {

using test::byte_level_tokenizer;
using test::json_text;
using test::SafetensorsBuilder;
using test::tiny_config;
using test::tiny_tensors;

std::string_view as_text(Code code) {
  return code_name(code);
}

Bytes as_bytes(const std::string& s) {
  return {reinterpret_cast<const uint8_t*>(s.data()), s.size()};
}

Result<SafetensorsFile> parse(const std::string& file) {
  SafetensorsFile out;
  size_t have = 0;
  for (int round = 0; round < 3; round++) {
    // Exact-size blocks, so that the address sanitizer sees a read past the prefix.
    std::vector<uint8_t> prefix(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(have));
    const auto progress = parse_safetensors(prefix, file.size(), "model.safetensors", &out);
    if (!progress.ok()) return progress.status();
    if (progress->done) return out;
    have = static_cast<size_t>(progress->need_bytes);
    if (have > file.size()) return error(Code::kInternal, "more than the file is asked for");
  }
  return error(Code::kInternal, "no progress");
}

void expect_refused(const std::string& file, Code code, std::string_view word) {
  const auto parsed = parse(file);
  ASSERT_FALSE(parsed.ok()) << word;
  EXPECT_EQ(as_text(parsed.status().code()), as_text(code)) << parsed.status().message();
  EXPECT_NE(parsed.status().message().find(word), std::string::npos) << parsed.status().message();
}

TEST(Safetensors, ReadsTheDirectory) {
  const std::string file = SafetensorsBuilder()
                               .raw(R"("__metadata__":{"format":"pt","x":"y"})")
                               .bf16("a", {2, 3})
                               .tensor("b", "F32", {4}, std::string(16, 'x'))
                               .tensor("scalar", "I64", {}, std::string(8, 'x'))
                               .build();
  const auto parsed = parse(file);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  ASSERT_EQ(parsed->entries.size(), 3u);
  const SafetensorsEntry& b = parsed->entries[1];
  EXPECT_EQ(b.name, "b");
  EXPECT_EQ(b.dtype, "F32");
  EXPECT_EQ(b.shape, std::vector<uint64_t>{4});
  EXPECT_EQ(b.end - b.begin, 16u);
  EXPECT_EQ(file.substr(static_cast<size_t>(b.begin), 16), std::string(16, 'x'));
  EXPECT_TRUE(parsed->entries[2].shape.empty());
}

TEST(Safetensors, EveryTruncatedLengthIsAnError) {
  const std::string file = SafetensorsBuilder().bf16("a", {2, 3}).bf16("b", {7}).build();
  for (size_t n = 1; n < file.size(); n++) {
    const auto parsed = parse(file.substr(0, n));
    ASSERT_FALSE(parsed.ok()) << n;
    EXPECT_EQ(as_text(parsed.status().code()), as_text(Code::kTruncated)) << n;
  }
}

TEST(Safetensors, RefusesWhatMakesNoSense) {
  const auto with = [](const std::string& json) {
    return SafetensorsBuilder::wrap(json, std::string(64, 'd'));
  };
  const auto entry = [&](const std::string& inner) { return with("{\"t\":{" + inner + "}}"); };
  expect_refused("<html>not found</html>", Code::kBadHeader, "not a safetensors");
  expect_refused(std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10), Code::kBadHeader, "header");
  expect_refused(with("nonsense"), Code::kBadHeader, "JSON");
  expect_refused(with("[1,2]"), Code::kBadHeader, "is not an object");
  expect_refused(with("5"), Code::kBadHeader, "no directory");
  expect_refused(with("{\"t\":5}"), Code::kBadHeader, "not an object");
  expect_refused(with("{\"t\":{}}"), Code::kBadHeader, "incomplete");
  expect_refused(with("{\"t\":{\"dtype\":\"F32\"}}"), Code::kBadHeader, "incomplete");
  expect_refused(with(std::string(200, '[')), Code::kBadHeader, "JSON");
  const std::string f32 = R"("dtype":"F32","shape":[2],)";
  EXPECT_TRUE(parse(entry(f32 + R"("data_offsets":[8,16])")).ok());
  expect_refused(entry(f32 + R"("data_offsets":[16,8])"), Code::kBadHeader, "incomplete");
  expect_refused(entry(f32 + R"("data_offsets":[8])"), Code::kBadHeader, "incomplete");
  expect_refused(entry(f32 + R"("data_offsets":[8,16,24])"), Code::kBadHeader, "no sense");
  expect_refused(entry(f32 + R"("data_offsets":[-8,0])"), Code::kBadHeader, "no sense");
  expect_refused(entry(f32 + R"("data_offsets":[0.5,8.5])"), Code::kBadHeader, "no sense");
  expect_refused(entry(f32 + R"("data_offsets":[8,20])"), Code::kBadHeader, "does not fit");
  expect_refused(entry(f32 + R"("data_offsets":[60,68])"), Code::kTruncated, "after the end");
  expect_refused(entry(f32 + R"("data_offsets":[9223372036854775799,9223372036854775807])"),
                 Code::kTruncated, "after the end");
  expect_refused(entry(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"),
                 Code::kBadHeader, "does not fit");
  expect_refused(entry(R"("dtype":7,"shape":[2],"data_offsets":[0,8])"), Code::kBadHeader,
                 "no sense");
  expect_refused(entry(R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,8])"),
                 Code::kBadHeader, "dimensions");
  expect_refused(with(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                      R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})"),
                 Code::kBadHeader, "overlap");
}

TEST(Safetensors, ShardsOfAnIndex) {
  const auto shards = safetensors_shards(
      R"({"metadata":{"total_size":5},"weight_map":{"a":"m-2.safetensors","b":"m-1.safetensors",
          "c":"m-2.safetensors"}})");
  ASSERT_TRUE(shards.ok()) << shards.status().message();
  EXPECT_EQ(*shards, (std::vector<std::string>{"m-1.safetensors", "m-2.safetensors"}));
  for (const char* bad : {"../../etc/passwd", "/etc/passwd", "http://h/x", "a\\b", ".hidden", "",
                          "x?y", "x#y", "x%2e"}) {
    const auto refused = safetensors_shards("{\"weight_map\":{\"a\":" + json_text(bad) + "}}");
    EXPECT_EQ(as_text(refused.status().code()), as_text(Code::kBadHeader)) << bad;
  }
  EXPECT_FALSE(safetensors_shards("{\"weight_map\":{\"a\":5}}").ok());
  EXPECT_FALSE(safetensors_shards("{}").ok());
  EXPECT_FALSE(safetensors_shards("{").ok());
  std::string many = "{\"weight_map\":{";
  for (int i = 0; i < 2000; i++) {
    many += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":\"f" + std::to_string(i) + "\"";
  }
  EXPECT_FALSE(safetensors_shards(many + "}}").ok());
}

// --- models

struct TinyModel {
  std::string config = tiny_config("qwen3");
  std::string tokenizer = byte_level_tokenizer();
  std::string tokenizer_config;
  std::string chat_template;
  std::vector<std::string> files = {tiny_tensors(true, false, true).build()};

  [[nodiscard]] Result<HfModel> describe() const {
    HfDirectory d{config, tokenizer, tokenizer_config, chat_template, {}, "tiny"};
    for (const std::string& file : files) {
      const auto parsed = parse(file);
      if (!parsed.ok()) return parsed.status();
      d.shards.push_back(*parsed);
    }
    return describe_hf_model(d);
  }
  void expect_refused(Code code, std::string_view word) const {
    const auto model = describe();
    ASSERT_FALSE(model.ok()) << word;
    EXPECT_EQ(as_text(model.status().code()), as_text(code)) << model.status().message();
    EXPECT_NE(model.status().message().find(word), std::string::npos) << model.status().message();
  }
};

TEST(HfModel, Qwen3) {
  const Result<HfModel> model = TinyModel().describe();
  ASSERT_TRUE(model.ok()) << model.status().message();
  const Header& h = model->header;
  EXPECT_EQ(h.get_string("general.architecture"), "qwen3");
  EXPECT_EQ(h.get_string("general.name"), "tiny");
  EXPECT_EQ(h.get_u64("qwen3.embedding_length"), 8u);
  EXPECT_EQ(h.get_u64("qwen3.block_count"), 2u);
  EXPECT_EQ(h.get_u64("qwen3.feed_forward_length"), 16u);
  EXPECT_EQ(h.get_u64("qwen3.attention.head_count"), 2u);
  EXPECT_EQ(h.get_u64("qwen3.attention.head_count_kv"), 1u);
  EXPECT_EQ(h.get_u64("qwen3.attention.key_length"), 4u);
  EXPECT_EQ(h.get_u64("qwen3.context_length"), 64u);
  EXPECT_FLOAT_EQ(static_cast<float>(*h.get_f64("qwen3.attention.layer_norm_rms_epsilon")), 1e-5f);
  EXPECT_EQ(h.get_f64("qwen3.rope.freq_base"), 10000.0);
  EXPECT_EQ(h.find("sluice.norm_offset"), nullptr);
  EXPECT_EQ(h.tensors.size(), 3u + 2 * 11);
  const Tensor* k = h.find_tensor("blk.1.attn_k.weight");
  ASSERT_NE(k, nullptr);
  EXPECT_EQ(k->cols(), 8u);
  EXPECT_EQ(k->rows(), 4u);
  EXPECT_EQ(k->type, TensorType::kBF16);
  EXPECT_EQ(k->bytes, 64u);
  EXPECT_NE(h.find_tensor("blk.0.attn_q_norm.weight"), nullptr);
  EXPECT_NE(h.find_tensor("output.weight"), nullptr);
  EXPECT_TRUE(model->made.empty());
}

TEST(HfModel, TheHeaderOutlivesEverythingElse) {
  Header kept;
  {
    TinyModel tiny;
    auto model = tiny.describe();
    ASSERT_TRUE(model.ok());
    kept = model->header;
  }
  EXPECT_EQ(kept.get_string("general.architecture"), "qwen3");
  EXPECT_NE(kept.find_tensor("token_embd.weight"), nullptr);
}

TEST(HfModel, ShardsAreFiles) {
  TinyModel tiny;
  tiny.config = tiny_config("llama");
  tiny.files = {SafetensorsBuilder().bf16("model.embed_tokens.weight", {260, 8}).build(),
                SafetensorsBuilder().bf16("lm_head.weight", {260, 8}).build()};
  const auto model = tiny.describe();
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->header.n_files, 2u);
  EXPECT_EQ(model->header.find_tensor("output.weight")->file, 1u);
  EXPECT_EQ(model->header.get_bool("sluice.rope_neox"), true);
  tiny.files.push_back(tiny.files[0]);
  tiny.expect_refused(Code::kBadHeader, "twice");
}

TEST(HfModel, Gemma) {
  TinyModel tiny;
  tiny.config = tiny_config("gemma", R"(,"hidden_act":"gelu","hidden_activation":null)");
  tiny.files = {tiny_tensors(false, false, true).build()};
  const auto gemma = tiny.describe();
  ASSERT_TRUE(gemma.ok()) << gemma.status().message();
  EXPECT_EQ(gemma->header.get_f64("sluice.norm_offset"), 1.0);
  EXPECT_EQ(gemma->header.find_tensor("output.weight"), nullptr);  // tied by default
  EXPECT_NE(gemma->header.find_tensor("blk.0.ffn_norm.weight"), nullptr);

  tiny.config =
      tiny_config("gemma2", R"(,"hidden_activation":"gelu_pytorch_tanh","query_pre_attn_scalar":16,
                   "sliding_window":32,"attn_logit_softcapping":50.0,
                   "final_logit_softcapping":30.0)");
  tiny.files = {tiny_tensors(false, true, false).build()};
  const auto gemma2 = tiny.describe();
  ASSERT_TRUE(gemma2.ok()) << gemma2.status().message();
  EXPECT_EQ(gemma2->header.get_f64("gemma2.attention.scale"), 0.25);
  EXPECT_EQ(gemma2->header.get_u64("gemma2.attention.sliding_window"), 32u);
  EXPECT_EQ(gemma2->header.get_f64("gemma2.final_logit_softcapping"), 30.0);
  for (const char* name : {"blk.1.post_attention_norm.weight", "blk.1.ffn_norm.weight",
                           "blk.1.post_ffw_norm.weight", "blk.1.attn_norm.weight"}) {
    EXPECT_NE(gemma2->header.find_tensor(name), nullptr) << name;
  }
}

TEST(HfModel, Gemma3Windows) {
  TinyModel tiny;
  tiny.files = {tiny_tensors(true, true, false).build()};
  const auto pattern = [&](const std::string& more) {
    tiny.config = tiny_config("gemma3_text", more);
    const auto model = tiny.describe();
    EXPECT_TRUE(model.ok()) << model.status().message();
    return model.ok() ? model->header.get_u64("gemma3.attention.sliding_window_pattern")
                      : std::nullopt;
  };
  EXPECT_EQ(pattern(""), 6u);
  EXPECT_EQ(pattern(R"(,"sliding_window_pattern":2)"), 2u);
  EXPECT_EQ(pattern(R"(,"layer_types":["sliding_attention","full_attention"])"), 2u);
  EXPECT_EQ(pattern(R"(,"layer_types":["full_attention","full_attention"])"), 1u);
  EXPECT_EQ(pattern(R"(,"layer_types":["sliding_attention","sliding_attention"])"), 3u);
  tiny.config = tiny_config("gemma3_text", R"(,"layer_types":["full_attention"])");
  tiny.expect_refused(Code::kBadHeader, "layer_types");
  tiny.config =
      tiny_config("gemma3_text", R"(,"layer_types":["full_attention","sliding_attention"])");
  tiny.expect_refused(Code::kUnsupportedArchitecture, "layer_types");

  tiny.config = tiny_config("gemma3_text", R"(,"rope_parameters":{"full_attention":{"rope_theta":
      2000000,"rope_type":"linear","factor":8},"sliding_attention":{"rope_theta":5000}})");
  const auto model = tiny.describe();
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->header.get_f64("gemma3.rope.freq_base"), 2e6);
  EXPECT_EQ(model->header.get_f64("gemma3.rope.freq_base_swa"), 5000.0);
  EXPECT_EQ(model->header.get_string("gemma3.rope.scaling.type"), "linear");
  EXPECT_EQ(model->header.get_f64("gemma3.rope.scaling.factor"), 8.0);
}

TEST(HfModel, RopeScalings) {
  TinyModel tiny;
  tiny.files = {tiny_tensors(false, false, true).build()};
  tiny.config = tiny_config("llama", R"(,"rope_theta":500000.0,"rope_scaling":{"factor":8.0,
      "low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":8192,
      "rope_type":"llama3"})");
  const auto llama3 = tiny.describe();
  ASSERT_TRUE(llama3.ok()) << llama3.status().message();
  const Tensor* factors = llama3->header.find_tensor("rope_freqs.weight");
  ASSERT_NE(factors, nullptr);
  EXPECT_EQ(factors->file, 1u);
  EXPECT_EQ(llama3->header.n_files, 2u);
  ASSERT_EQ(llama3->made.size(), 8u);
  float values[2];
  std::memcpy(values, llama3->made.data(), 8);
  EXPECT_EQ(values[0], 1.0f);  // a wave of 2 pi positions is short
  const double wave = 2 * 3.14159265358979 * std::sqrt(500000.0);  // of the second pair
  const double smooth = (8192 / wave - 1) / 3;
  EXPECT_NEAR(values[1], 1 / ((1 - smooth) / 8 + smooth), 1e-5);

  tiny.config = tiny_config("llama", R"(,"rope_scaling":{"type":"yarn","factor":4.0,
      "original_max_position_embeddings":32})");
  const auto yarn = tiny.describe();
  ASSERT_TRUE(yarn.ok()) << yarn.status().message();
  EXPECT_EQ(yarn->header.get_string("llama.rope.scaling.type"), "yarn");
  EXPECT_EQ(yarn->header.get_u64("llama.rope.scaling.original_context_length"), 32u);
  EXPECT_EQ(yarn->header.get_f64("llama.rope.scaling.attn_factor"), 1.0);

  const auto refused = [&](const char* scaling, Code code, const char* word) {
    tiny.config = tiny_config("llama", std::string(",\"rope_scaling\":") + scaling);
    tiny.expect_refused(code, word);
  };
  refused(R"({"type":"dynamic","factor":2.0})", Code::kUnsupportedArchitecture, "dynamic");
  refused(R"({"type":"linear","factor":-2.0})", Code::kBadHeader, "factor");
  refused(R"({"type":"linear","factor":"2"})", Code::kBadHeader, "factor");
  refused(R"({"rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":1})",
          Code::kBadHeader, "contradicts");
}

TEST(HfModel, RefusesByName) {
  TinyModel tiny;
  const auto config = [&](const std::string& text, Code code, const char* word) {
    TinyModel t = tiny;
    t.config = text;
    t.expect_refused(code, word);
  };
  config("", Code::kBadHeader, "config.json");
  config("[]", Code::kBadHeader, "config.json");
  config("{}", Code::kBadHeader, "model_type");
  config(tiny_config("mamba"), Code::kUnsupportedArchitecture, "mamba");
  config(R"({"model_type":"qwen3"})", Code::kBadHeader, "vocab_size");
  config(tiny_config("qwen3", R"(,"hidden_act":"relu")"), Code::kUnsupportedArchitecture, "relu");
  config(tiny_config("qwen3", R"(,"use_sliding_window":true)"), Code::kUnsupportedArchitecture,
         "use_sliding_window");
  config(tiny_config("qwen3", R"(,"quantization_config":{"quant_method":"gptq"})"),
         Code::kUnsupportedType, "quantization_config");
  config(tiny_config("qwen3", R"(,"rope_theta":-1)"), Code::kBadHeader, "rope_theta");
  config(tiny_config("qwen3", R"(,"rope_theta":"x")"), Code::kBadHeader, "rope_theta");
  const auto number = [&](const char* key, const char* value) {
    std::string text = tiny_config("qwen3");
    const size_t at = text.find(key) + std::string(key).size() + 2;
    text.replace(at, text.find_first_of(",}", at) - at, value);
    config(text, Code::kBadHeader, key);
  };
  for (const char* value : {"0", "-1", "1e3", "\"8\"", "[]", "99999999999", "null"}) {
    number("hidden_size", value);
    number("num_hidden_layers", value);
    number("num_attention_heads", value);
  }

  TinyModel stray = tiny;
  stray.files[0] = SafetensorsBuilder().bf16("model.layers.0.mlp.experts.0.w1.weight", {8}).build();
  stray.expect_refused(Code::kUnsupportedArchitecture, "mlp.experts.0.w1");
  stray.files[0] =
      SafetensorsBuilder().tensor("model.norm.weight", "F8_E4M3", {8}, "12345678").build();
  stray.expect_refused(Code::kUnsupportedType, "F8_E4M3");
  stray.files[0] = SafetensorsBuilder().bf16("model.norm.weight", {1, 1, 1, 1, 8}).build();
  stray.expect_refused(Code::kBadShape, "model.norm.weight");
  stray.files[0] = SafetensorsBuilder().bf16("model.norm.weight", {0}).build();
  stray.expect_refused(Code::kBadHeader, "output_norm");
  stray.files.clear();
  stray.expect_refused(Code::kBadHeader, "0 safetensors files");
}

// --- tokenizers

TEST(HfTokenizer, ByteLevel) {
  TinyModel tiny;
  tiny.tokenizer_config = R"({"eos_token":{"content":"<|end|>"},"bos_token":null,
      "add_bos_token":false,"chat_template":"{{ messages }}"})";
  const auto model = tiny.describe();
  ASSERT_TRUE(model.ok()) << model.status().message();
  const Header& h = model->header;
  EXPECT_EQ(h.get_string("tokenizer.ggml.model"), "gpt2");
  EXPECT_EQ(h.get_string("tokenizer.ggml.pre"), "qwen2");
  EXPECT_EQ(h.get_u64("tokenizer.ggml.eos_token_id"), 259u);
  EXPECT_EQ(h.find("tokenizer.ggml.bos_token_id"), nullptr);
  EXPECT_EQ(h.get_bool("tokenizer.ggml.add_bos_token"), false);
  EXPECT_EQ(h.get_string("tokenizer.chat_template"), "{{ messages }}");
  EXPECT_EQ(h.find("tokenizer.ggml.tokens")->count, 260u);
  EXPECT_EQ(h.find("tokenizer.ggml.token_type")->number_at(259), 3.0);
  const auto tokenizer = tokenizer::Tokenizer::create(h);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ((*tokenizer)->encode("hell we<|end|>"),
            (std::vector<tokenizer::Token>{257, 'l', 258, 'e', 259}));
  EXPECT_EQ((*tokenizer)->eos(), 259);
}

TEST(HfTokenizer, PreTokenizersByTheirExpressions) {
  const auto pre = [](const std::string& tokenizer_json) {
    TinyModel tiny;
    tiny.tokenizer = tokenizer_json;
    const auto model = tiny.describe();
    return model.ok() ? std::string(*model->header.get_string("tokenizer.ggml.pre"))
                      : model.status().message();
  };
  std::string llama3 = test::kQwen2Regex;
  llama3.replace(llama3.find("\\p{N}|"), 6, "\\p{N}{1,3}|");
  EXPECT_EQ(pre(byte_level_tokenizer()), "qwen2");
  EXPECT_EQ(pre(byte_level_tokenizer(llama3)), "dbrx");
  std::string whole = byte_level_tokenizer(llama3);
  whole.replace(whole.find("\"byte_fallback\""), 0, "\"ignore_merges\":true,");
  EXPECT_EQ(pre(whole), "llama-bpe");
  std::string gpt2 = byte_level_tokenizer();
  const size_t at = gpt2.find("\"pre_tokenizer\":");
  gpt2.replace(at, gpt2.find("\"model\"") - at,
               R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},)");
  EXPECT_EQ(pre(gpt2), "gpt-2");
  std::string removed = byte_level_tokenizer();
  removed.replace(removed.find("Isolated"), 8, "Removed");
  EXPECT_NE(pre(removed).find("another way"), std::string::npos);
  EXPECT_NE(pre(byte_level_tokenizer("\\w+")).find("\\w+"), std::string::npos);
}

TEST(HfTokenizer, BosFromTheTemplate) {
  TinyModel tiny;
  tiny.tokenizer_config = R"({"bos_token":"<|end|>"})";
  const auto adds = [&](const char* single) {
    tiny.tokenizer = byte_level_tokenizer(
        test::kQwen2Regex, std::string(R"("post_processor":{"type":"Sequence","processors":[
            {"type":"ByteLevel"},{"type":"TemplateProcessing","single":)") +
                               single + "}]},");
    const auto model = tiny.describe();
    EXPECT_TRUE(model.ok()) << model.status().message();
    return model.ok() && *model->header.get_bool("tokenizer.ggml.add_bos_token");
  };
  const char* kBos = R"({"SpecialToken":{"id":"<|end|>","type_id":0}})";
  const char* kText = R"({"Sequence":{"id":"A","type_id":0}})";
  EXPECT_TRUE(adds(("[" + std::string(kBos) + "," + kText + "]").c_str()));
  EXPECT_FALSE(adds(("[" + std::string(kText) + "]").c_str()));
  EXPECT_FALSE(adds(("[" + std::string(kText) + "," + kBos + "]").c_str()));
  tiny.tokenizer_config = R"({"bos_token":"<|end|>","add_bos_token":false})";
  EXPECT_FALSE(adds(("[" + std::string(kBos) + "," + kText + "]").c_str()));
}

TEST(HfTokenizer, RefusesByName) {
  const auto refused = [](const std::string& from, const std::string& to, Code code,
                          const char* word) {
    TinyModel tiny;
    const size_t at = tiny.tokenizer.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    tiny.tokenizer.replace(at, from.size(), to);
    tiny.expect_refused(code, word);
  };
  refused("\"he\":256", "\"he\":260", Code::kBadTokenizer, "260");
  refused("\"he\":256", "\"he\":-1", Code::kBadTokenizer, "id");
  refused("\"he\":256", "\"he\":257", Code::kBadTokenizer, "257");
  refused("\"he\":256", "\"hel\":256", Code::kBadTokenizer, "twice");
  refused("\"h e\"", "\"h x\"", Code::kBadTokenizer, "\"x\"");
  refused("\"h e\"", "\"he\"", Code::kBadTokenizer, "pair");
  refused("\"h e\"", "5", Code::kBadTokenizer, "merge");
  refused("[\"he\",\"l\"]", "[\"he\"]", Code::kBadTokenizer, "pair");
  refused("[\"he\",\"l\"]", "[\"he\",\"l\",\"x\"]", Code::kBadTokenizer, "pair");
  refused("\"BPE\"", "\"Unigram\"", Code::kUnsupportedTokenizer, "Unigram");
  refused("\"type\":\"ByteLevel\",", "", Code::kUnsupportedTokenizer, "byte fallback");
  refused("\"merges\":[", "\"merges\":[}", Code::kBadHeader, "tokenizer.json");
  TinyModel absent;
  absent.tokenizer = "";
  absent.expect_refused(Code::kBadHeader, "tokenizer.json");
  TinyModel settings;
  settings.tokenizer_config = "{";
  settings.expect_refused(Code::kBadHeader, "tokenizer_config.json");
}

TEST(HfTokenizer, RandomDamageNeverCrashes) {
  const TinyModel whole;
  std::mt19937 rng(3);
  int refused = 0;
  for (int i = 0; i < 1500; i++) {
    TinyModel tiny = whole;
    std::string& text = i % 3 == 0 ? tiny.config : i % 3 == 1 ? tiny.tokenizer : tiny.files[0];
    const char kBytes[] = "{}[]\",:0019-e.tn\\\x80";
    for (auto k = rng() % 3 + 1; k > 0; k--) text[rng() % text.size()] = kBytes[rng() % 18];
    if (rng() % 4 == 0) text.resize(rng() % text.size());
    const auto model = tiny.describe();
    if (model.ok()) {
      (void)tokenizer::Tokenizer::create(model->header);
    } else {
      EXPECT_NE(model.status().code(), Code::kInternal);
      refused++;
    }
  }
  EXPECT_GT(refused, 0);
}

// --- real vocabularies: a GGUF's, written as tokenizer.json and read back, gives the same ids

std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::vector<std::string> strings_of(const Header& h, const char* key) {
  std::vector<std::string> out;
  const Value* value = h.find(key);
  if (value == nullptr) return out;
  StringCursor cursor(*value);
  std::string_view text;
  while (cursor.next(&text)) out.emplace_back(text);
  return out;
}

// SentencePiece's merges, as converters write them: every way to cut a token in two, by score.
std::vector<std::string> merges_by_score(const std::vector<std::string>& tokens,
                                         const Value& scores) {
  std::unordered_map<std::string_view, size_t> ids;
  for (size_t i = 0; i < tokens.size(); i++) ids.emplace(tokens[i], i);
  struct Merge {
    double score;
    size_t left, right;
  };
  std::vector<Merge> merges;
  for (size_t i = 0; i < tokens.size(); i++) {
    const std::string_view t = tokens[i];
    for (size_t cut = 1; cut < t.size(); cut++) {
      const auto left = ids.find(t.substr(0, cut));
      const auto right = ids.find(t.substr(cut));
      if (left == ids.end() || right == ids.end()) continue;
      merges.push_back({scores.number_at(i), left->second, right->second});
    }
  }
  std::stable_sort(merges.begin(), merges.end(),
                   [](const Merge& a, const Merge& b) { return a.score > b.score; });
  std::vector<std::string> out;
  for (const Merge& m : merges) out.push_back(tokens[m.left] + ' ' + tokens[m.right]);
  return out;
}

std::string tokenizer_json_of(const Header& h, const std::string& regex) {
  const auto tokens = strings_of(h, "tokenizer.ggml.tokens");
  const Value& types = *h.find("tokenizer.ggml.token_type");
  const bool sentencepiece = h.get_string("tokenizer.ggml.model") == "llama";
  const auto merges = sentencepiece ? merges_by_score(tokens, *h.find("tokenizer.ggml.scores"))
                                    : strings_of(h, "tokenizer.ggml.merges");
  std::string added;
  std::string vocab;
  for (size_t i = 0; i < tokens.size(); i++) {
    const double type = types.number_at(i);
    if (type == 5) continue;
    if (type == 3 || type == 4) {
      added.append(added.empty() ? "" : ",").append("{\"id\":").append(std::to_string(i));
      added.append(",\"content\":").append(json_text(tokens[i])).append(",\"special\":");
      added.append(type == 3 ? "true}" : "false}");
    } else {
      vocab.append(vocab.empty() ? "" : ",").append(json_text(tokens[i]));
      vocab.append(":").append(std::to_string(i));
    }
  }
  std::string list;
  for (const std::string& m : merges) list.append(list.empty() ? "" : ",").append(json_text(m));
  std::string pre = "null";
  if (!sentencepiece) {
    pre = R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":)" +
          json_text(regex) +
          R"(},"behavior":"Isolated","invert":false},{"type":"ByteLevel","use_regex":false}]})";
  }
  return R"({"added_tokens":[)" + added + R"(],"normalizer":{"type":"Prepend","prepend":"_"},)" +
         "\"pre_tokenizer\":" + pre + R"(,"model":{"type":"BPE","unk_token":"<unk>",)" +
         (sentencepiece ? R"("byte_fallback":true)" : R"("ignore_merges":true)") + ",\"vocab\":{" +
         vocab + "},\"merges\":[" + list + "]}}";
}

void expect_same_ids(const char* name, const std::string& regex) {
  const std::filesystem::path dir = std::filesystem::path(SLUICE_SHARED_DIR) / "fixtures/tokenizer";
  if (!std::filesystem::exists(dir)) GTEST_SKIP() << "fixtures are absent";
  const std::string file = read_text(dir / (std::string("ggml-vocab-") + name + ".gguf"));
  Header h;
  const auto progress = parse_header(as_bytes(file), file.size(), &h);
  ASSERT_TRUE(progress.ok() && progress->done);
  const size_t n = h.find("tokenizer.ggml.tokens")->count;
  TinyModel tiny;
  tiny.tokenizer = tokenizer_json_of(h, regex);
  tiny.config = tiny_config("llama");
  tiny.config.replace(tiny.config.find("260"), 3, std::to_string(n));
  const auto model = tiny.describe();
  ASSERT_TRUE(model.ok()) << model.status().message();
  const auto theirs = tokenizer::Tokenizer::create(h);
  const auto ours = tokenizer::Tokenizer::create(model->header);
  ASSERT_TRUE(theirs.ok() && ours.ok()) << ours.status().message();
  const std::string input = read_text(dir / (std::string("ggml-vocab-") + name + ".gguf.inp"));
  size_t at = 0;
  int texts = 0;
  const tokenizer::EncodeOptions options{.add_bos = false, .parse_special = false};
  while (at < input.size()) {
    size_t end = input.find("\n__ggml_vocab_test__\n", at);
    if (end == std::string::npos) end = input.size();
    const std::string text = input.substr(at, end - at);
    EXPECT_EQ((*ours)->encode(text, options), (*theirs)->encode(text, options)) << text;
    at = end + 21;
    texts++;
  }
  EXPECT_GT(texts, 20);
}

TEST(HfTokenizer, QwenVocabularyFromTokenizerJson) {
  expect_same_ids("qwen2", test::kQwen2Regex);
}

TEST(HfTokenizer, Llama3VocabularyFromTokenizerJson) {
  std::string llama3 = test::kQwen2Regex;
  llama3.replace(llama3.find("\\p{N}|"), 6, "\\p{N}{1,3}|");
  expect_same_ids("llama-bpe", llama3);
}

TEST(HfTokenizer, SentencePieceVocabularyFromTokenizerJson) {
  expect_same_ids("llama-spm", "");
}

}  // namespace
}  // namespace sluice::gguf

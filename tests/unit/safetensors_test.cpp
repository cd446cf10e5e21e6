// Hugging Face directories as headers: exact names, shapes and metadata for each family, and typed
// errors for everything hostile. hf_tokenizer_test.cpp tests their tokenizers.
#include "hf/safetensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "hf/architecture.h"
#include "hf_tiny_model.h"

namespace sluice::hf {

using gguf::Header;
using gguf::Tensor;
using gguf::TensorType;
namespace {

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

TEST(Safetensors, RejectsNonsense) {
  const auto with = [](const std::string& json) {
    return SafetensorsBuilder::wrap(json, std::string(64, 'd'));
  };
  const auto entry = [&](const std::string& inner) { return with("{\"t\":{" + inner + "}}"); };
  expect_refused("<html>not found</html>", Code::kBadHeader, "not a safetensors");
  expect_refused(std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10), Code::kBadHeader, "header");
  expect_refused(with("nonsense"), Code::kBadHeader, "JSON");
  expect_refused(with("[1,2]"), Code::kBadHeader, "is not an object");
  expect_refused(with("5"), Code::kBadHeader, "not a JSON object");
  expect_refused(with("{\"t\":5}"), Code::kBadHeader, "not an object");
  expect_refused(with("{\"t\":{}}"), Code::kBadHeader, "incomplete");
  expect_refused(with("{\"t\":{\"dtype\":\"F32\"}}"), Code::kBadHeader, "incomplete");
  expect_refused(with(std::string(200, '[')), Code::kBadHeader, "JSON");
  const std::string f32 = R"("dtype":"F32","shape":[2],)";
  EXPECT_TRUE(parse(entry(f32 + R"("data_offsets":[8,16])")).ok());
  expect_refused(entry(f32 + R"("data_offsets":[16,8])"), Code::kBadHeader, "incomplete");
  expect_refused(entry(f32 + R"("data_offsets":[8])"), Code::kBadHeader, "incomplete");
  expect_refused(entry(f32 + R"("data_offsets":[8,16,24])"), Code::kBadHeader, "invalid");
  expect_refused(entry(f32 + R"("data_offsets":[-8,0])"), Code::kBadHeader, "invalid");
  expect_refused(entry(f32 + R"("data_offsets":[0.5,8.5])"), Code::kBadHeader, "invalid");
  expect_refused(entry(f32 + R"("data_offsets":[8,20])"), Code::kBadHeader, "does not fit");
  expect_refused(entry(f32 + R"("data_offsets":[60,68])"), Code::kTruncated, "after the end");
  expect_refused(entry(f32 + R"("data_offsets":[9223372036854775799,9223372036854775807])"),
                 Code::kTruncated, "after the end");
  expect_refused(entry(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])"),
                 Code::kBadHeader, "does not fit");
  expect_refused(entry(R"("dtype":7,"shape":[2],"data_offsets":[0,8])"), Code::kBadHeader,
                 "invalid");
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
                          "x?y", "x#y", "x%2e", "config.json", "..safetensors", "x?.safetensors",
                          "a/b.safetensors", "a b.safetensors", "a\r\nb.safetensors"}) {
    const auto refused = safetensors_shards("{\"weight_map\":{\"a\":" + json_text(bad) + "}}");
    EXPECT_EQ(as_text(refused.status().code()), as_text(Code::kBadHeader)) << bad;
  }
  EXPECT_FALSE(safetensors_shards("{\"weight_map\":{\"a\":5}}").ok());
  EXPECT_FALSE(safetensors_shards("{}").ok());
  EXPECT_FALSE(safetensors_shards("{").ok());
  std::string many = "{\"weight_map\":{";
  for (int i = 0; i < 2000; i++) {
    many += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":\"f" + std::to_string(i) +
            ".safetensors\"";
  }
  EXPECT_NE(safetensors_shards(many + "}}").status().message().find("too many"), std::string::npos);
}

// --- models

TEST(Model, Qwen3) {
  const Result<Model> model = TinyModel().describe();
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

TEST(Model, TheHeaderOutlivesEverythingElse) {
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

TEST(Model, ShardsAreFiles) {
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

TEST(Model, RefusesBidirectionalAttentionThatItDoesNotRun) {
  for (const char* type : {"llama", "gpt_oss", "gemma2"}) {
    TinyModel tiny;
    tiny.config = tiny_config(type, R"(,"use_bidirectional_attention":true)");
    tiny.expect_refused(Code::kUnsupportedArchitecture, "use_bidirectional_attention");
  }
}

TEST(Model, EveryArchitectureIsNamedOnceAndHasMaps) {
  std::set<std::string_view> names;
  for (const Architecture& row : architectures()) {
    EXPECT_TRUE(names.insert(row.model_type).second) << row.model_type;
    EXPECT_FALSE(row.fields->empty()) << row.model_type;
    EXPECT_FALSE(row.tensors->whole.empty()) << row.model_type;
    for (const Name& name : row.tensors->of_layer) {
      if (name.turn == TensorTransform::kSkip) continue;
      std::string theirs(name.theirs);
      if (const size_t at = theirs.find('#'); at != std::string::npos) theirs.replace(at, 1, "3");
      const Found found =
          find_name(*row.tensors, std::string(row.tensors->layers).append("7.").append(theirs));
      EXPECT_TRUE(found.ours.starts_with("blk.7.")) << row.model_type << " " << name.theirs;
      EXPECT_EQ(found.turn, name.turn) << row.model_type << " " << name.theirs;
    }
  }
  EXPECT_EQ(names.size(), 24u);
}

TEST(Model, Gemma) {
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

TEST(Model, Gemma3Windows) {
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

TEST(Model, RopeScalings) {
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
  EXPECT_EQ(values[0], 1.0f);  // a wavelength of 2 pi positions is short
  const double wave = 2 * 3.14159265358979 * std::sqrt(500000.0);  // wavelength of the second pair
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
          Code::kBadHeader, "inconsistent");
}

TEST(Model, ErrorsNameWhatIsUnsupported) {
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
  stray.expect_refused(Code::kBadHeader, "model.norm.weight");
  stray.files.clear();
  stray.expect_refused(Code::kBadHeader, "0 safetensors files");
}

}  // namespace
}  // namespace sluice::hf

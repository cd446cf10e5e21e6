// Hugging Face directories in memory, for tests: a safetensors writer, a JSON escaper, and a tiny
// model of any supported family with a byte-level vocabulary.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::test {

inline std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      out += escape;
    } else {
      out += c;
    }
  }
  return out + '"';
}

// Writes a safetensors file, tensor by tensor. Sizes follow from dtype and shape unless given.
class SafetensorsBuilder {
 public:
  SafetensorsBuilder& tensor(std::string_view name, std::string_view dtype,
                             const std::vector<uint64_t>& shape, std::string data) {
    std::string entry = json_text(name) + ":{\"dtype\":" + json_text(dtype) + ",\"shape\":[";
    for (size_t i = 0; i < shape.size(); i++) {
      entry.append(i == 0 ? "" : ",").append(std::to_string(shape[i]));
    }
    entry.append("],\"data_offsets\":[").append(std::to_string(data_.size())).append(",");
    data_ += data;
    return raw(entry.append(std::to_string(data_.size())).append("]}"));
  }
  SafetensorsBuilder& bf16(std::string_view name, const std::vector<uint64_t>& shape) {
    uint64_t n = 2;
    for (const uint64_t d : shape) n *= d;
    return tensor(name, "BF16", shape, std::string(static_cast<size_t>(n), '\x3c'));
  }
  // Any directory entry.
  SafetensorsBuilder& raw(std::string_view entry) {
    json_.append(json_.empty() ? "" : ",").append(entry);
    return *this;
  }
  [[nodiscard]] std::string build() const { return wrap("{" + json_ + "}", data_); }

  static std::string wrap(std::string json, const std::string& data) {
    while (json.size() % 8 != 0) json += ' ';
    const uint64_t length = json.size();
    std::string out(8, '\0');
    std::memcpy(out.data(), &length, 8);
    return out + json + data;
  }

 private:
  std::string json_;
  std::string data_;
};

// GPT-2's printable characters for bytes, by the published rule.
inline std::string byte_spelling(int byte) {
  const auto printable = [](int b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
  };
  int cp = byte;
  if (!printable(byte)) {
    cp = 256;
    for (int b = 0; b < byte; b++) cp += printable(b) ? 0 : 1;
  }
  if (cp < 0x80) return std::string(1, static_cast<char>(cp));
  return {static_cast<char>(0xC0 | (cp >> 6)), static_cast<char>(0x80 | (cp & 0x3F))};
}

inline constexpr const char* kQwen2Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// tokenizer.json of a byte-level vocabulary: 256 bytes, "he", "hel", " w", then <|end|> as 259.
inline std::string byte_level_tokenizer(const std::string& regex = kQwen2Regex,
                                        const std::string& more = "") {
  std::string vocab;
  for (int b = 0; b < 256; b++)
    vocab += json_text(byte_spelling(b)) + ":" + std::to_string(b) + ",";
  vocab += "\"he\":256,\"hel\":257,\"\xC4\xA0w\":258";
  return R"({"version":"1.0","added_tokens":[{"id":259,"content":"<|end|>","special":true}],)"
         R"("normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"Sequence","pretokenizers":[)"
         R"({"type":"Split","pattern":{"Regex":)" +
         json_text(regex) +
         R"(},"behavior":"Isolated","invert":false},{"type":"ByteLevel","use_regex":false}]},)" +
         more + R"("model":{"type":"BPE","unk_token":null,"byte_fallback":false,"vocab":{)" +
         vocab + "},\"merges\":[\"h e\",[\"he\",\"l\"],\"\xC4\xA0 w\"]}}";
}

// The tensors of a model with 2 layers, width 8, 2 heads of 4, FFN 16, vocabulary 260.
inline SafetensorsBuilder tiny_tensors(bool qk_norm, bool post_norms, bool head) {
  SafetensorsBuilder b;
  b.bf16("model.embed_tokens.weight", {260, 8}).bf16("model.norm.weight", {8});
  if (head) b.bf16("lm_head.weight", {260, 8});
  for (int layer = 0; layer < 2; layer++) {
    const std::string at = "model.layers." + std::to_string(layer) + ".";
    b.bf16(at + "input_layernorm.weight", {8}).bf16(at + "post_attention_layernorm.weight", {8});
    b.bf16(at + "self_attn.q_proj.weight", {8, 8}).bf16(at + "self_attn.k_proj.weight", {4, 8});
    b.bf16(at + "self_attn.v_proj.weight", {4, 8}).bf16(at + "self_attn.o_proj.weight", {8, 8});
    b.bf16(at + "mlp.gate_proj.weight", {16, 8}).bf16(at + "mlp.up_proj.weight", {16, 8});
    b.bf16(at + "mlp.down_proj.weight", {8, 16});
    if (qk_norm) {
      b.bf16(at + "self_attn.q_norm.weight", {4}).bf16(at + "self_attn.k_norm.weight", {4});
    }
    if (post_norms) {
      b.bf16(at + "pre_feedforward_layernorm.weight", {8});
      b.bf16(at + "post_feedforward_layernorm.weight", {8});
    }
  }
  return b;
}

inline std::string tiny_config(const std::string& model_type, const std::string& more = "") {
  return R"({"model_type":")" + model_type +
         R"(","vocab_size":260,"hidden_size":8,"num_hidden_layers":2,"num_attention_heads":2,)"
         R"("num_key_value_heads":1,"head_dim":4,"intermediate_size":16,"rms_norm_eps":1e-05,)"
         R"("max_position_embeddings":64)" +
         more + "}";
}

}  // namespace sluice::test

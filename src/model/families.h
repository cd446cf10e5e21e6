// The supported model families, by their name in general.architecture.
#pragma once

#include <string_view>

namespace sluice::model {

class Builder;

struct Family {
  const char* arch;
  bool neox;  // RoPE pairing in its GGUF files
  void (*build)(Builder& b);
  bool skips_nextn = false;  // its last nextn_predict_layers are MTP layers, not part of the model
  bool recurrent = false;    // may have no attention; has metadata of recurrent layers
};

// Null if the family is not supported.
[[nodiscard]] const Family* find_family(std::string_view arch);

// Whether the family is bidirectional if attention.causal is absent.
[[nodiscard]] bool reads_whole_texts(std::string_view arch);

void build_llama(Builder& b);
void build_qwen(Builder& b);
void build_gemma(Builder& b);
void build_lfm2(Builder& b);
void build_bert(Builder& b);
void build_modern_bert(Builder& b);
void build_moe(Builder& b);
// Appends one of its layers, with `rope`.
void build_moe_layer(Builder& b, int64_t layer, int32_t rope);
void build_smallthinker(Builder& b);
void build_afmoe(Builder& b);
void build_grovemoe(Builder& b);
void build_dense(Builder& b);
void build_mamba(Builder& b);
void build_hybrid_mamba(Builder& b);
void build_qwen35(Builder& b);
// Appends one of its layers; `attends`: attention with `rope`, else the gated delta rule.
void build_qwen35_layer(Builder& b, int64_t layer, int32_t rope, bool attends);
void build_rwkv6(Builder& b);
void build_rwkv7(Builder& b);
void build_plamo2(Builder& b);
void build_gemma3n(Builder& b);
void build_gemma4(Builder& b);
void build_minicpm3(Builder& b);
void build_deepseek2(Builder& b);
void build_kimi_linear(Builder& b);
void build_llama4(Builder& b);
void build_t5(Builder& b);

}  // namespace sluice::model

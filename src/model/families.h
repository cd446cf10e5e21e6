// The model families that are implemented, by the name in general.architecture.
#pragma once

#include <string_view>

namespace sluice::model {

class Builder;

struct Family {
  const char* arch;
  bool neox;  // RoPE pairing of its GGUF files
  void (*build)(Builder& b);
  bool skips_nextn = false;  // its last nextn_predict_layers only predict further tokens
  bool recurrent = false;    // may be without attention; has the metadata of recurrent layers
};

// Null when there is none.
[[nodiscard]] const Family* find_family(std::string_view arch);

// Whether every position sees all of its text, where attention.causal does not say.
[[nodiscard]] bool reads_whole_texts(std::string_view arch);

void build_llama(Builder& b);
void build_qwen(Builder& b);
void build_gemma(Builder& b);
void build_lfm2(Builder& b);
void build_bert(Builder& b);
void build_modern_bert(Builder& b);
void build_moe(Builder& b);
// One of its layers, with `rope`.
void build_moe_layer(Builder& b, int64_t layer, int32_t rope);
void build_smallthinker(Builder& b);
void build_afmoe(Builder& b);
void build_grovemoe(Builder& b);
void build_dense(Builder& b);
void build_mamba(Builder& b);
void build_hybrid_mamba(Builder& b);
void build_qwen35(Builder& b);
// One of its layers; `attends`: with attention, rotated by `rope`, else the gated delta rule.
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

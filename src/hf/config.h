// A Hugging Face model directory as a gguf::Header: config.json becomes the metadata that a GGUF of
// the same model would have, tensors get GGUF's names, shapes are turned round. The engine then
// needs no second path. What a converter would change in the weights is said in metadata instead:
//   sluice.rope_neox = true     queries and keys are in rotate-half order (GGUF's llama is
//   permuted) sluice.norm_offset = 1.0    norm weights are stored as w - 1 (gemma)
// Llama 3's RoPE factors, which GGUF has as a tensor, are computed into `made`, one more file; what
// is stored otherwise altogether is `derived`, one more, that is made when it is read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "hf/model.h"

namespace sluice::hf {

// Families: llama, mistral, qwen2, qwen3, smollm3, gemma, gemma2, gemma3 (text, EmbeddingGemma),
// lfm2, lfm2_moe, and those of further.h.
// Errors: kBadHeader, kUnsupportedArchitecture, kUnsupportedType, kBadTokenizer,
// kUnsupportedTokenizer.
[[nodiscard]] Result<Model> describe_model(const Directory& directory);

// --- for other files that are made after such models

// "model.layers.7.self_attn.q_proj" to "blk.7.attn_q.weight"; empty when unknown.
[[nodiscard]] std::string gguf_module_name(std::string_view module);

}  // namespace sluice::hf

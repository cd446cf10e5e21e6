// Describes a Hugging Face model directory as a gguf::Header, so that the engine has one way to
// load a model. config.json becomes the metadata of a GGUF file of the same model, tensors get
// GGUF's names, and the order of dimensions is reversed. Where a converter would change weights,
// metadata describes the difference instead:
//   sluice.rope_neox = true    queries and keys are in rotate-half order (GGUF's llama is permuted)
//   sluice.norm_offset = 1.0   norm weights are stored as w - 1 (gemma)
// Llama 3's RoPE factors, a tensor in GGUF, are computed into one more file, `made`. Tensors with
// another layout are in one more virtual file, `derived`, whose bytes are computed on reading.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "hf/model.h"

namespace sluice::hf {

// The model types are those of hf/architectures.cpp.
// Errors: kBadHeader, kUnsupportedArchitecture, kUnsupportedType, kBadTokenizer,
// kUnsupportedTokenizer.
[[nodiscard]] Result<Model> describe_model(const Directory& directory);

// --- for other files in the same format, such as adapters

// "model.layers.7.self_attn.q_proj" to "blk.7.attn_q.weight"; empty when unknown.
[[nodiscard]] std::string gguf_module_name(std::string_view module);

}  // namespace sluice::hf

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
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"
#include "hf/derived.h"
#include "hf/safetensors.h"

namespace sluice::hf {

// The files' contents; optional ones are empty when absent.
struct Directory {
  std::string_view config;            // config.json
  std::string_view tokenizer;         // tokenizer.json
  std::string_view tokenizer_config;  // tokenizer_config.json, optional
  std::string_view chat_template;     // chat_template.jinja, optional
  std::vector<SafetensorsFile> shards;
  std::string_view name;  // for general.name, optional
  // Of sentence-transformers, optional: modules.json, 1_Pooling/config.json.
  std::string_view modules = {}, pooling = {};
};

struct Model {
  gguf::Header header;  // owns all it points to; file i is shard i
  std::string made;     // when not empty: the bytes of file number shards.size()
  // When not empty: what the last file is made of, by address.
  std::vector<Derived> derived = {};
};

// Families: llama, mistral, qwen2, qwen3, smollm3, gemma, gemma2, gemma3 (text), lfm2, lfm2_moe;
// and natively those of further.h.
// Errors: kBadHeader, kUnsupportedArchitecture, kUnsupportedType, kBadTokenizer,
// kUnsupportedTokenizer.
[[nodiscard]] Result<Model> describe_model(const Directory& directory);

// --- for other files that are made after such models

// A tensor of a safetensors file as GGUF describes it, without a name. Errors: kUnsupportedType,
// kBadShape.
[[nodiscard]] Result<gguf::Tensor> describe_tensor(const SafetensorsEntry& entry);
// "model.layers.7.self_attn.q_proj" to "blk.7.attn_q.weight"; empty when unknown.
[[nodiscard]] std::string gguf_module_name(std::string_view module);
// How the rows of queries and keys lie in a GGUF of the family: as in Hugging Face's, or permuted.
enum class RowOrder : uint8_t { kUnknown, kAsThere, kPermuted };
[[nodiscard]] RowOrder row_order(std::string_view arch);

}  // namespace sluice::hf

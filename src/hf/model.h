// A model directory's files and what becomes of them, and the steps that all families take from the
// one to the other.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"
#include "gguf/metadata_writer.h"
#include "hf/safetensors.h"
#include "hf/tensor_transform.h"

namespace sluice::hf {

// One of sentence-transformers' Dense modules: the folder, its config.json, its model.safetensors.
struct DenseModule {
  std::string_view folder, config;
  SafetensorsFile weights;
};

// The files' contents; optional ones are empty when absent.
struct Directory {
  std::string_view config;            // config.json
  std::string_view tokenizer;         // tokenizer.json
  std::string_view tokenizer_config;  // tokenizer_config.json, optional
  std::string_view chat_template;     // chat_template.jinja, optional
  std::vector<SafetensorsFile> shards;
  std::string_view name;                // for general.name, optional
  std::string_view pooling = {};        // sentence-transformers' 1_Pooling/config.json, optional
  std::vector<DenseModule> dense = {};  // as modules.json lists them
};

struct Model {
  gguf::Header header;  // owns all it points to; file i is shard i, Dense modules' are behind them
  std::string made;     // when not empty: the bytes of the file behind those
  // When not empty: what the last file is made of, by address.
  std::vector<Derived> derived = {};
};

// What every header begins with.
void begin_model(const Directory& directory, std::string_view arch, Model* model,
                 gguf::MetadataWriter* writer);
// A tensor of a safetensors file as GGUF describes it, without a name. Errors: kUnsupportedType,
// kBadShape.
[[nodiscard]] Result<gguf::Tensor> describe_tensor(const SafetensorsEntry& entry);
// Under this name one more of the header. Errors: kBadHeader where there are too many.
[[nodiscard]] Status add_tensor(std::string_view name, gguf::Tensor tensor, gguf::Header* header,
                                gguf::MetadataWriter* writer);
// Factors of RoPE's frequencies as the one tensor of a file of their own, where there are any.
void add_rope_factors(const std::vector<float>& factors, Model* model);

}  // namespace sluice::hf

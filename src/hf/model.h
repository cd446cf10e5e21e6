// The files of a model directory, the model that they become, and the steps that all families
// share.
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

// The files' contents; optional ones are empty when missing.
struct Directory {
  std::string_view config;            // config.json
  std::string_view tokenizer;         // tokenizer.json
  std::string_view tokenizer_config;  // tokenizer_config.json, optional
  std::string_view chat_template;     // chat_template.jinja, optional
  std::vector<SafetensorsFile> shards;
  std::string_view name;                // for general.name, optional
  std::string_view pooling = {};        // sentence-transformers' 1_Pooling/config.json, optional
  std::vector<DenseModule> dense = {};  // as modules.json lists them
  std::string_view preprocessor = {};   // preprocessor_config.json, optional; of a projector
};

struct Model {
  gguf::Header header;  // owns all it points to; file i is shard i, then come the Dense modules
  std::string made;     // if not empty: the bytes of the file after those
  // If not empty: how to make the bytes of the last file, sorted by address.
  std::vector<Derived> derived = {};
};

// Writes the metadata that every header begins with.
void begin_model(const Directory& directory, std::string_view arch, Model* model,
                 gguf::MetadataWriter* writer);
// Describes a tensor of a safetensors file in GGUF's terms, without a name. Errors:
// kUnsupportedType, kBadShape.
[[nodiscard]] Result<gguf::Tensor> describe_tensor(const SafetensorsEntry& entry);
// Adds the tensor to the header under this name. Errors: kBadHeader when there are too many.
[[nodiscard]] Status add_tensor(std::string_view name, gguf::Tensor tensor, gguf::Header* header,
                                gguf::MetadataWriter* writer);
// Adds the factors of RoPE's frequencies, if any, as the only tensor of one more file.
void add_rope_factors(const std::vector<float>& factors, Model* model);

}  // namespace sluice::hf

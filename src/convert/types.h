// Chooses each tensor's type: the names that llama-quantize has for types and mixes, what they mean
// for each tensor, and the fallback if a row's length does not fit a type. Source of the rules:
// llama.cpp, src/llama-quant.cpp (MIT).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"

namespace sluice::convert {

struct Recipe {
  std::string_view name;  // "q4_k_m"
  gguf::TensorType type;  // type of most matrices
  uint32_t file_type;     // general.file_type
};

// Finds a recipe by name, ignoring case. Errors: kInvalidArgument, listing the names.
[[nodiscard]] Result<const Recipe*> find_recipe(std::string_view name);

struct Choice {
  gguf::TensorType type;
  bool fallback = false;  // the rows do not fit the requested type's blocks
  bool raised = false;    // a smaller type does not keep the outliers
};

// Types for header.tensors, which must be in the order of use. `pure`: every matrix gets
// recipe.type.
[[nodiscard]] std::vector<Choice> choose_types(const gguf::Header& header, const Recipe& recipe,
                                               bool pure, bool has_imatrix);
// Types if none is requested: small float tensors become f32, all others are kept.
[[nodiscard]] std::vector<Choice> keep_types(const gguf::Header& header);

// Which types may be chosen.
struct TypeFilter {
  bool has_imatrix = false;  // types that need an importance matrix
  bool qsf = false;          // types that exist only in QSF files
};

// Whether a matrix may have this type only if the importance of its columns is known.
[[nodiscard]] bool needs_imatrix(std::string_view name, gguf::TensorType type,
                                 const Recipe* recipe);

// Whether a tensor's values may be quantized: matrices, except those where quantization hurts and
// saves almost nothing.
[[nodiscard]] bool is_quantizable(const gguf::Tensor& tensor);
// The file type for a file whose bytes are mostly of this type: the one that llama.cpp assumes for
// files without one.
[[nodiscard]] uint32_t file_type_of(gguf::TensorType type);

// Indexes of header.tensors in the order of use: embeddings, each layer's tensors in the order of
// its operations, then the head.
[[nodiscard]] std::vector<uint32_t> order_of_use(const gguf::Header& header);

// The layer of "blk.7.attn_q.weight"; -1 for a tensor outside the layers.
[[nodiscard]] int32_t layer_of(std::string_view name);

}  // namespace sluice::convert

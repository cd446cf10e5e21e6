// Which type each tensor gets: the names that llama-quantize has for types and mixtures, what they
// mean for which tensor, and what takes the place of a type that a row's length does not fit.
// Source of the rules: llama.cpp, src/llama-quant.cpp (MIT).
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
  gguf::TensorType type;  // of most matrices
  uint32_t file_type;     // general.file_type
};

// By name, in any case. kInvalidArgument lists the names.
[[nodiscard]] Result<const Recipe*> find_recipe(std::string_view name);

struct Choice {
  gguf::TensorType type;
  bool fallback = false;  // the wanted type's blocks do not fit the rows
  bool raised = false;    // a smaller type does not hold the outliers
};

// Types for header.tensors, which are in the order of use. pure: every matrix gets recipe.type.
[[nodiscard]] std::vector<Choice> choose_types(const gguf::Header& header, const Recipe& recipe,
                                               bool pure, bool has_imatrix);
// The same where no type is asked for: vectors become f32, everything else stays.
[[nodiscard]] std::vector<Choice> keep_types(const gguf::Header& header);

// Whether a tensor's values may be quantized: a matrix, and none that a few bytes more serve
// better.
[[nodiscard]] bool is_quantizable(const gguf::Tensor& tensor);
// The file type of a file most of whose bytes have this type.
[[nodiscard]] uint32_t file_type_of(gguf::TensorType type);

// The positions of header.tensors in the order in which a pass uses them: embeddings, then layer by
// layer, within one as its operations follow each other, then the head.
[[nodiscard]] std::vector<uint32_t> order_of_use(const gguf::Header& header);

// The layer of "blk.7.attn_q.weight", -1 for a tensor of none.
[[nodiscard]] int32_t layer_of(std::string_view name);

}  // namespace sluice::convert

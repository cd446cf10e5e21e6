// Types for a file of a given size: what each type would lose is measured tensor by tensor, and
// bytes go where they save most of it.
#pragma once

#include "convert/pieces.h"

namespace sluice::convert {

// The moments for `tensor`, null where none are known. Errors: Importance::find's.
[[nodiscard]] Result<const std::vector<float>*> importance_of(const Options& options,
                                                              const gguf::Tensor& tensor);

// Types for header.tensors so that the file has at most options.target_bytes. The error of a matrix
// is the share of its products' power, by the moments of what it is multiplied with where these are
// known; the sum over matrices is what becomes least. Vectors and other small tensors stay.
// Errors: kInvalidArgument, naming the smallest size; those of reading.
[[nodiscard]] Result<std::vector<Choice>> types_for_size(const gguf::Header& header,
                                                         const Options& options, PieceMaker* maker);

// The type that most bytes of matrices have.
[[nodiscard]] gguf::TensorType commonest(const gguf::Header& header,
                                         const std::vector<Choice>& choices);

}  // namespace sluice::convert

// Types for a file of a given size: what each type would lose is known tensor by tensor, and bytes
// go where they save most of it.
#pragma once

#include "convert/pieces.h"
#include "convert/sensitivity.h"

namespace sluice::convert {

// The moments for `tensor`, null where none are known. Errors: Importance::find's.
[[nodiscard]] Result<const std::vector<float>*> importance_of(const Options& options,
                                                              const gguf::Tensor& tensor);

struct Sized {
  std::vector<Choice> choices;             // by tensor
  std::vector<Sensitivity> sensitivities;  // likewise
};

// Refuses by kInvalidArgument what no choice of types can reach: from the header, before anything
// is measured.
[[nodiscard]] Status check_size(const gguf::Header& header, uint64_t target_bytes);

// Types for header.tensors so that the file has at most options.target_bytes, `reserved` of them
// for metadata that is yet to come, and the model's answers change least, by options.probes. Where
// nothing was measured the error of a matrix is the share of its products' power, by the moments of
// what it is multiplied with where these are known, and the sum over matrices becomes least.
// Vectors and other small tensors stay. Errors: kInvalidArgument, naming the smallest size; those
// of reading.
[[nodiscard]] Result<Sized> types_for_size(const gguf::Header& header, uint64_t reserved,
                                           const Options& options, PieceMaker* maker);

// The type that most bytes of matrices have.
[[nodiscard]] gguf::TensorType commonest(const gguf::Header& header,
                                         const std::vector<Choice>& choices);

}  // namespace sluice::convert

// Types for a file of a given size: what each type would lose is known tensor by tensor, and bytes
// go where they save most of it.
#pragma once

#include "convert/chunks.h"
#include "convert/layout.h"
#include "convert/sensitivity.h"

namespace sluice::convert {

// The moments for `tensor`, null where none are known. Errors: Imatrix::find's.
[[nodiscard]] Result<const std::vector<float>*> importance_of(const Options& options,
                                                              const gguf::Tensor& tensor);

// Whether a type holds outliers whose error is such a share of their power: the share that a tensor
// may lose which keeps options.min_cosine.
[[nodiscard]] bool outliers_kept(double error, const Options& options);

struct Sized {
  std::vector<Choice> choices;             // by tensor
  std::vector<Sensitivity> sensitivities;  // likewise
};

// A file whose tensors' types are to be chosen, and how large it is then.
class Sizer {
 public:
  // `header` has its tensors in the file's order and all keys that the file will have, but for
  // `reserved` bytes of them.
  Sizer(const Layout& layout, const gguf::Header& header, uint64_t reserved)
      : layout_(layout), header_(header), front_(layout.front_bytes(header) + reserved) {}

  void set(size_t tensor, gguf::TensorType type);
  // Errors: the layout's, for a file that cannot be.
  [[nodiscard]] Result<uint64_t> bytes() { return layout_.file_bytes(&header_, front_); }

 private:
  const Layout& layout_;
  gguf::Header header_;
  uint64_t front_;
};

// Refuses by kInvalidArgument, naming the smallest size, what no choice of types can reach: by
// shapes alone where there is no `maker`, else of types that keep options.min_cosine.
// Errors: those of reading.
[[nodiscard]] Status check_size(const gguf::Header& header, Sizer sizer, const Options& options,
                                ChunkMaker* maker);

// Types for header.tensors so that the file has at most options.target_bytes and the model's
// answers change least, by options.probes. Where nothing was measured the error of a matrix is the
// share of its products' power, by the moments of what it is multiplied with where these are known,
// and the sum over matrices becomes least. Vectors and other small tensors stay. Errors:
// kInvalidArgument, naming the smallest size; those of reading.
[[nodiscard]] Result<Sized> types_for_size(const gguf::Header& header, Sizer sizer,
                                           const Options& options, ChunkMaker* maker);

// The type that most bytes of matrices have.
[[nodiscard]] gguf::TensorType commonest(const gguf::Header& header,
                                         const std::vector<Choice>& choices);

}  // namespace sluice::convert

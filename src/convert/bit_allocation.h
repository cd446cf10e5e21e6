// Chooses types for a file of a given size: the error of each type is measured per tensor, and
// bytes go where they reduce the output change most.
#pragma once

#include "convert/chunks.h"
#include "convert/layout.h"
#include "convert/sensitivity.h"

namespace sluice::convert {

// The importance of the columns of `tensor`; null if unknown. Errors: those of Imatrix::find.
[[nodiscard]] Result<const std::vector<float>*> importance_of(const Options& options,
                                                              const gguf::Tensor& tensor);

// Whether a type keeps outliers. `error` is the squared error as a share of their power; the limit
// is what a tensor may lose at options.min_cosine.
[[nodiscard]] bool outliers_kept(double error, const Options& options);

struct Sized {
  std::vector<Choice> choices;             // one per tensor
  std::vector<Sensitivity> sensitivities;  // one per tensor
};

// Computes the size of a file whose tensor types are being chosen.
class Sizer {
 public:
  // `header` has its tensors in file order and all metadata keys of the file, except for `reserved`
  // bytes of them.
  Sizer(const Layout& layout, const gguf::Header& header, uint64_t reserved)
      : layout_(layout), header_(header), front_(layout.front_bytes(header) + reserved) {}

  void set(size_t tensor, gguf::TensorType type);
  // The file's size. Errors: those of the layout, if such a file is not possible.
  [[nodiscard]] Result<uint64_t> bytes() { return layout_.file_bytes(&header_, front_); }

 private:
  const Layout& layout_;
  gguf::Header header_;
  uint64_t front_;
};

// Checks that options.target_bytes can be reached. Without a `maker`, by shapes only; else with
// types that keep options.cosine(). Errors: kInvalidArgument, naming the smallest size; those of
// reading.
[[nodiscard]] Status check_size(const gguf::Header& header, Sizer sizer, const Options& options,
                                ChunkMaker* maker);

// Chooses types for header.tensors so that the file has at most options.target_bytes and the
// model's output changes least, as measured by options.probes. Without probes, it minimizes the sum
// over matrices of the relative squared error of their outputs, weighted by the importance matrix
// if there is one. Small tensors keep their types. Errors: kInvalidArgument, naming the smallest
// size; those of reading.
[[nodiscard]] Result<Sized> types_for_size(const gguf::Header& header, Sizer sizer,
                                           const Options& options, ChunkMaker* maker);

// `choice`, or if it does not keep the tensor as close as options.min_cosine, the smallest larger
// type that does. Errors: those of reading.
[[nodiscard]] Result<Choice> near_enough(const gguf::Tensor& tensor, const Choice& choice,
                                         const Options& options, ChunkMaker* maker);

// The type with the most bytes among matrices.
[[nodiscard]] gguf::TensorType commonest(const gguf::Header& header,
                                         const std::vector<Choice>& choices);

}  // namespace sluice::convert

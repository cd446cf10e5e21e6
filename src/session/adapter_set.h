// The LoRA adapters in use, applied to the model's matrices and held in memory, packed like pinned
// weights. bind() finds from names and shapes alone which matrices they change and how much memory
// they take, so the plan can count them; load() reads them. Their terms are added in f32 beside the
// weights. A token's result is bit-identical whatever batch it is in.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "adapter/adapter.h"
#include "base/aligned.h"
#include "kernels/kernels.h"
#include "model/program.h"

namespace sluice::session {

inline constexpr int32_t kLowRankTokens = 32;  // tokens multiplied together

struct AdapterNeeds {
  uint64_t bytes = 0;    // while loading; slightly less afterwards
  uint64_t scratch = 0;  // per thread
};

class AdapterSet {
 public:
  // One adapter's change to a matrix: W + scale * b a, with a [rank][columns] and b [rows][rank].
  // For the embedding, a is [tokens][rank] and not packed.
  struct Term {
    kernels::Matrix a, b;
    float scale;
  };

  // Sources with a scale of 0 are checked but not applied. Errors name the tensor:
  // kUnsupportedArchitecture (made for another family, or not supported for this one),
  // kMissingTensor, kBadShape, kInvalidArgument (too many adapters, a scale that is not finite).
  [[nodiscard]] static Result<AdapterSet> bind(const model::Program& program,
                                               const kernels::Table& table,
                                               std::span<const adapter::Source> sources);
  [[nodiscard]] AdapterNeeds needs() const { return needs_; }
  // Call once, with the sources given to bind(). Errors: read errors, kBadWeights, kOutOfMemory.
  [[nodiscard]] Status load(const kernels::Table& table, std::span<const adapter::Source> sources);

  // Terms of a matrix, in the order of the sources.
  [[nodiscard]] std::span<const Term> of_mat(int32_t mat) const {
    if (terms_.empty()) return {};
    const size_t m = static_cast<size_t>(mat);
    return {terms_.data() + first_[m], terms_.data() + first_[m + 1]};
  }
  [[nodiscard]] std::span<const Term> of_embedding() const {
    if (terms_.empty()) return {};
    return {terms_.data() + first_[first_.size() - 2], terms_.data() + first_.back()};
  }
  // All terms, and the first of each matrix, of the embedding, and the end.
  [[nodiscard]] std::span<const Term> terms() const { return terms_; }
  [[nodiscard]] std::span<const uint32_t> firsts() const { return first_; }
  // A checksum that identifies the loaded set; 0: no adapters.
  [[nodiscard]] uint64_t sum() const { return sum_; }

 private:
  // Where a term's data is until it is loaded.
  struct Origin {
    size_t source = 0;
    const adapter::Pair* pair = nullptr;
    int64_t slice = 0, first_row = 0;  // of b, within the slice
    int64_t head = 0;                  // head size if rows must be reordered; 0: no reordering
    bool interleaves = false;          // reorder halves into pairs; false: pairs into halves
  };
  class Binder;
  class Loader;

  std::vector<uint32_t> first_;  // by mat, then the embedding, then the end
  std::vector<Term> terms_;
  std::vector<Origin> origins_;
  uint64_t held_ = 0, staged_ = 0;
  AdapterNeeds needs_;
  AlignedBuffer memory_;
  uint64_t sum_ = 0;
};

}  // namespace sluice::session

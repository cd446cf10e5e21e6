// The adapters in use, laid over the model's matrices and held in memory, packed like weights that
// stay. bind() says from names and shapes alone which matrices they change and what they take, so
// that the plan can count them; load() reads them. What they add to a product is computed beside
// the weights in f32, token by token the same to the bit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "adapter/adapter.h"
#include "base/aligned.h"
#include "kernels/kernels.h"
#include "model/program.h"

namespace sluice::session {

inline constexpr int32_t kLowRankTokens = 32;  // that are multiplied together

struct AdapterNeeds {
  uint64_t bytes = 0;    // while they are loaded; a little less afterwards
  uint64_t scratch = 0;  // of a thread
};

class AdapterSet {
 public:
  // A matrix W gains scale * b a: a [rank][columns], b [rows][rank]. Of the embedding a is
  // [tokens][rank], not packed.
  struct Term {
    kernels::Matrix a, b;
    float scale;
  };

  // Sources with a scale of 0 are checked, and then left out. Errors, naming the tensor:
  // kUnsupportedArchitecture (another family's, or a matrix that takes none), kMissingTensor,
  // kBadShape, kInvalidArgument (too many of them, a scale that is no number).
  [[nodiscard]] static Result<AdapterSet> bind(const model::Program& program,
                                               const kernels::Table& table,
                                               std::span<const adapter::Source> sources);
  [[nodiscard]] AdapterNeeds needs() const { return needs_; }
  // Of the same sources, once. Errors: theirs, kBadWeights, kOutOfMemory.
  [[nodiscard]] Status load(const kernels::Table& table, std::span<const adapter::Source> sources);

  // In the sources' order.
  [[nodiscard]] std::span<const Term> of_mat(int32_t mat) const {
    if (terms_.empty()) return {};
    const size_t m = static_cast<size_t>(mat);
    return {terms_.data() + first_[m], terms_.data() + first_[m + 1]};
  }
  [[nodiscard]] std::span<const Term> of_embedding() const {
    if (terms_.empty()) return {};
    return {terms_.data() + first_[first_.size() - 2], terms_.data() + first_.back()};
  }
  // Tells loaded sets apart; 0 for none.
  [[nodiscard]] uint64_t sum() const { return sum_; }

 private:
  // Where a term's numbers are, until they are loaded.
  struct Origin {
    size_t source = 0;
    const adapter::Pair* pair = nullptr;
    int64_t slice = 0, first_row = 0;  // of b, in the slice
    int64_t head = 0;                  // size of heads whose rows are to be reordered; 0: none
    bool interleaves = false;          // they are, halves into pairs; else pairs into halves
  };
  class Binder;
  class Loader;

  std::vector<uint32_t> first_;  // by mat, then the embedding, then their end
  std::vector<Term> terms_;
  std::vector<Origin> origins_;
  uint64_t held_ = 0, staged_ = 0;
  AdapterNeeds needs_;
  AlignedBuffer memory_;
  uint64_t sum_ = 0;
};

}  // namespace sluice::session

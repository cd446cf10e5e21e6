// What each expert of a mixture is worth in memory: the measured probability that its layer's next
// token uses it. An expert's age (tokens since its last use) and its frequency (uses, halved every
// kHalfLife tokens) select a cell of one table for all layers. Each cell counts how often such an
// expert was used by the next token. LRU and LFU are special cases, and which of them suits a
// router is measured instead of assumed. All layers share the table, so values can be compared
// between layers: one with fewer popular experts gets a larger share of the memory.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace sluice::residency {

// An expert's matrices, which follow one another in the plan.
struct Expert {
  uint32_t first_unit = 0, end_unit = 0;
  uint32_t layer = 0;
  uint32_t form = 0;  // experts of one form have units of the same sizes
};

// Tokens of a batch that use an expert, an index in Plan::experts.
struct ExpertUse {
  uint32_t expert = 0;
  int32_t tokens = 0;
};

class ExpertValues {
 public:
  static constexpr int kHalfLife = 64;  // tokens
  // Batches of more tokens are prompts. They say nothing about the next token.
  static constexpr int32_t kMaxDecodeBatch = 16;

  // The experts of a layer follow one another.
  void init(std::span<const Expert> experts);
  // The layer's next `n_tokens` tokens use these experts, ascending.
  void note(uint32_t layer, int32_t n_tokens, std::span<const ExpertUse> used);
  // The probability that the next token of the expert's layer uses it.
  [[nodiscard]] double value(uint32_t expert) const;
  [[nodiscard]] std::span<const Expert> experts() const { return experts_; }
  // The experts of a layer: [first, second).
  [[nodiscard]] std::pair<uint32_t, uint32_t> of_layer(uint32_t layer) const {
    return {layers_[layer].first, layers_[layer].end};
  }
  [[nodiscard]] uint32_t layers() const { return static_cast<uint32_t>(layers_.size()); }

 private:
  static constexpr size_t kAges = 9, kFrequencies = 8;

  struct Record {
    float uses = 0;     // as of `last`
    uint32_t last = 0;  // the layer's clock after its last use; 0: never used
  };
  struct Layer {
    uint32_t first = 0, end = 0;
    uint32_t clock = 1;  // tokens so far, plus 1
    float uses = 0;      // of all its experts, as of `clock`
  };
  struct Cell {
    float seen = 0, used = 0;
  };

  [[nodiscard]] double uses(uint32_t expert) const;
  [[nodiscard]] size_t cell_of(uint32_t expert) const;

  std::span<const Expert> experts_;
  std::vector<Record> records_;
  std::vector<Layer> layers_;
  std::array<Cell, kAges * kFrequencies> cells_{};
  uint32_t notes_ = 0;  // since the cells were last halved
};

}  // namespace sluice::residency

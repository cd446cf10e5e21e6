// Which rows of a batch have left (model/early_exit.h). Whether a row leaves depends on that row
// alone, so a text gives the same whatever was computed beside it or before. Work is spared where
// all rows of a batch have left: answers that are written token by token. In larger batches the
// layers run for all rows, and what they add to those that have left is taken back.
#pragma once

#include <array>
#include <vector>

#include "session/engine.h"

namespace sluice::session {

using ExitFeatures = std::array<float, model::kExitFeatures>;
// Of a row of n values behind a layer, and before it. Natively alone.
[[nodiscard]] ExitFeatures exit_features(const float* before, const float* now, int64_t n);

class EarlyExit {
 public:
  explicit EarlyExit(Engine& engine) : engine_(engine) {
    if constexpr (model::kEarlyExit) reserve();
  }

  // A batch of so many rows begins; rows leave only where `on`.
  void begin(int32_t rows, bool on);
  [[nodiscard]] bool on() const { return model::kEarlyExit && on_; }
  // Layer `layer` is done (-1: what comes before the first): whose rows leave behind it. `last`: no
  // other follows.
  void layer_done(int32_t layer, bool last);
  // Whether the operation has nothing to do.
  [[nodiscard]] bool skips(size_t op) const;
  // Of a product in which column its first part may begin.
  [[nodiscard]] int32_t first_column(size_t op) const;
  [[nodiscard]] bool all_left() const { return on() && n_left_ == rows_; }

 private:
  void reserve();
  [[nodiscard]] bool leaves(int32_t layer, const float* before, const float* now) const;
  void announce(int32_t layer);
  void demand(int32_t mat);
  [[nodiscard]] const model::EarlyExits& exits() const { return engine_.program().exits; }

  Engine& engine_;
  bool on_ = false;
  int32_t rows_ = 0, n_left_ = 0;
  std::vector<uint8_t> left_;     // by row
  std::vector<uint32_t> demand_;  // units
};

}  // namespace sluice::session

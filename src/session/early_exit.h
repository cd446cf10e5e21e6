// Tracks which rows of a batch have exited early (model/early_exit.h). Whether a row exits depends
// on that row alone, so results do not depend on the other rows of the batch or on earlier batches.
// Layers are skipped only when all rows of the batch have exited, as in decode steps. In larger
// batches the layers run for all rows, and their contribution to exited rows is undone.
#pragma once

#include <array>
#include <vector>

#include "session/engine.h"

namespace sluice::session {

using ExitFeatures = std::array<float, model::kExitFeatures>;
// Features of a row of n values before and after a layer. Native builds only.
[[nodiscard]] ExitFeatures exit_features(const float* before, const float* now, int64_t n);

class EarlyExit {
 public:
  explicit EarlyExit(Engine& engine) : engine_(engine) {
    if constexpr (model::kEarlyExit) reserve();
  }

  // Begins a batch of `rows` rows; rows exit only if `on`.
  void begin(int32_t rows, bool on);
  [[nodiscard]] bool on() const { return model::kEarlyExit && on_; }
  // Call after layer `layer` (-1: after the operations before the first layer): decides which rows
  // exit. `last`: no layer follows.
  void layer_done(int32_t layer, bool last);
  // Whether an operation can be skipped.
  [[nodiscard]] bool skips(size_t op) const;
  // The first column of a matrix multiplication's output that is needed.
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

// Logits of a part of the vocabulary (model/head_clusters.h). What a row gets depends on that row
// alone: not on others beside it, nor on whether its products are computed apart, where all of the
// head is in memory, or were all computed because it streams.
#pragma once

#include <array>

#include "session/engine.h"

namespace sluice::session {

class NarrowHead {
 public:
  explicit NarrowHead(Engine& engine) : engine_(engine) {}

  // What a thread needs.
  [[nodiscard]] static uint64_t scratch_bytes(const model::Program& program,
                                              const kernels::Table& table);
  [[nodiscard]] bool on() const { return clusters().most > 0; }
  // Whether the chosen products of so many rows are to be computed apart: the weights are there,
  // and there are fewer products than the whole head's.
  [[nodiscard]] bool apart(int32_t rows) const;
  // The rows of op.out from those of op.in. With `known` op.out has all products already.
  void run(const model::Op& op, int32_t rows, bool known);

 private:
  // A row that is computed.
  struct Row {
    const float* x;
    float* logits;
    float scale;
    bool known;
  };

  [[nodiscard]] const model::HeadClusters& clusters() const {
    return engine_.program().head_clusters;
  }
  [[nodiscard]] const model::Mat& head() const {
    return engine_.program().mats[static_cast<size_t>(engine_.program().head)];
  }
  void run_row(const Row& row);
  void score(const Row& row);
  // Takes the cluster with the greatest of these values, of those that are not taken yet.
  void take(const float* values);
  // Multiplies the tokens of clusters taken_[from] on; the largest logit of all so far.
  void multiply(const Row& row, int32_t from);
  void multiply_group(const Row& row, const int32_t* tokens, int32_t n, int thread) const;

  Engine& engine_;
  std::array<float, model::kMostClusters> scores_{}, guesses_{}, promises_{}, bounds_{};
  std::array<bool, model::kMostClusters> chosen_{};
  std::array<int32_t, model::kMostClusters> taken_{};
  std::array<int64_t, model::kMostClusters + 1> groups_{};  // before each of the taken ones
  int32_t n_taken_ = 0;
  float best_ = 0;
};

}  // namespace sluice::session

// Computes logits for only some clusters of the vocabulary (model/head_clusters.h). A row's result
// depends on that row alone: not on other rows in the batch, nor on whether the chosen clusters are
// multiplied separately (the head is in memory) or the whole head is (it streams).
#pragma once

#include <array>
#include <type_traits>
#include <vector>

#include "session/engine.h"
#include "session/weight_stream.h"

namespace sluice::session {

class ClusteredHead {
 public:
  // With more rows, sharing the cost of packing the whole head is faster.
  static constexpr int32_t kMaxRowsApart = 4;

  explicit ClusteredHead(Engine& engine) : engine_(engine) {
    if constexpr (model::kHeadInOrder) reserve();
  }

  // Bytes of scratch per thread.
  [[nodiscard]] static uint64_t scratch_bytes(const model::Program& program,
                                              const kernels::Table& table);
  [[nodiscard]] bool on() const { return clusters().most > 0; }
  // Whether to multiply only the chosen clusters of so many rows: the weights are in memory, and
  // that is less work than the whole head.
  [[nodiscard]] bool apart(int32_t rows) const;
  // Computes the rows of op.out from those of op.in. `known`: op.out already has all logits.
  void run(const model::Op& op, int32_t rows, bool known);

  // --- a head whose rows are in the order of its clusters; native builds only ---
  [[nodiscard]] bool in_order(int32_t rows) const;  // and so few rows that clusters are chosen
  // Computes the rows of op.out from those of op.in, resuming where the last call stopped unless it
  // `begins`. Missing weights are requested, but only those of the chosen clusters.
  [[nodiscard]] WeightStream::Run run_in_order(const model::Op& op, int32_t rows, bool begins,
                                               WeightStream* feed);
  // Requests the units of the remaining matrix multiplications.
  void demand(std::span<const Product> products, const WeightStream& feed);
  // Reorders logits of a whole multiplication from cluster order to token order.
  void settle_order(const model::Op& op, int32_t rows);

 private:
  // One row of the computation.
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
  [[nodiscard]] Row row_of(const model::Op& op, int32_t t, bool known) const;
  void reserve();
  void choose_parts(const Row& row, int32_t from);
  void run_row(const Row& row);
  // Chooses the most promising clusters.
  void begin_row(const Row& row);
  // Whether a cluster that was not chosen may contain the largest logit.
  [[nodiscard]] bool any_open() const;
  // Chooses further clusters.
  void take_further();
  // Gives tokens that are not multiplied the expected logit of their cluster.
  void finish_row(const Row& row);
  void score(const Row& row);
  // Chooses the cluster with the greatest value among those not yet chosen.
  void take(const float* values);
  // Multiplies the tokens of clusters taken_[from] on and updates the largest logit so far.
  void multiply(const Row& row, int32_t from);
  void multiply_group(const Row& row, const int32_t* tokens, int32_t n, int thread) const;

  Engine& engine_;
  std::array<float, model::kMaxClusters> scores_{}, cluster_logits_{}, promises_{}, bounds_{};
  std::array<bool, model::kMaxClusters> chosen_{};
  std::array<int32_t, model::kMaxClusters> taken_{};
  std::array<int64_t, model::kMaxClusters + 1> groups_{};  // row groups before each chosen cluster
  int32_t n_taken_ = 0;
  float best_ = 0;
  // For a head in cluster order: the current row, its multiplications, and its logits by cluster.
  struct InOrder {
    int32_t row = 0, from = 0;
    bool chosen = false;
    std::vector<Product> parts;
    std::vector<uint32_t> units;
    std::vector<float> logits;  // [n_vocab]
  };
  struct Nothing {};
  std::conditional_t<model::kHeadInOrder, InOrder, Nothing> order_;
};

}  // namespace sluice::session

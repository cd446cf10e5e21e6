// Logits of a part of the vocabulary (model/head_clusters.h). What a row gets depends on that row
// alone: not on others beside it, nor on whether its products are computed apart, where all of the
// head is in memory, or were all computed because it streams.
#pragma once

#include <array>
#include <type_traits>
#include <vector>

#include "session/engine.h"
#include "session/weight_stream.h"

namespace sluice::session {

class ClusteredHead {
 public:
  static constexpr int32_t kMaxRowsApart = 4;  // more share what packing the whole head costs

  explicit ClusteredHead(Engine& engine) : engine_(engine) {
    if constexpr (model::kHeadInOrder) reserve();
  }

  // What a thread needs.
  [[nodiscard]] static uint64_t scratch_bytes(const model::Program& program,
                                              const kernels::Table& table);
  [[nodiscard]] bool on() const { return clusters().most > 0; }
  // Whether the chosen products of so many rows are to be computed apart: the weights are there,
  // and there are fewer products than the whole head's.
  [[nodiscard]] bool apart(int32_t rows) const;
  // The rows of op.out from those of op.in. With `known` op.out has all products already.
  void run(const model::Op& op, int32_t rows, bool known);

  // --- where the head lies in the order of its clusters, natively ---
  [[nodiscard]] bool in_order(int32_t rows) const;  // and so few rows are computed apart
  // The rows of op.out from those of op.in, from where the last call stopped unless it `begins`;
  // what is not in memory is asked for, of the head no more than the clusters that are chosen.
  [[nodiscard]] WeightStream::Run run_in_order(const model::Op& op, int32_t rows, bool begins,
                                               WeightStream* feed);
  // Asks for the units of products that are still to come.
  void demand(std::span<const Product> products, const WeightStream& feed);
  // Takes the logits of whole products, which are by cluster, to their tokens.
  void settle_order(const model::Op& op, int32_t rows);

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
  [[nodiscard]] Row row_of(const model::Op& op, int32_t t, bool known) const;
  void reserve();
  void choose_parts(const Row& row, int32_t from);
  void run_row(const Row& row);
  // Chooses the clusters that promise most.
  void begin_row(const Row& row);
  // Whether a cluster that is left may have the largest logit.
  [[nodiscard]] bool any_open() const;
  // Has further ones chosen.
  void take_further();
  // What is not multiplied gets what is to be expected of it.
  void finish_row(const Row& row);
  void score(const Row& row);
  // Takes the cluster with the greatest of these values, of those that are not taken yet.
  void take(const float* values);
  // Multiplies the tokens of clusters taken_[from] on; the largest logit of all so far.
  void multiply(const Row& row, int32_t from);
  void multiply_group(const Row& row, const int32_t* tokens, int32_t n, int thread) const;

  Engine& engine_;
  std::array<float, model::kMaxClusters> scores_{}, cluster_logits_{}, promises_{}, bounds_{};
  std::array<bool, model::kMaxClusters> chosen_{};
  std::array<int32_t, model::kMaxClusters> taken_{};
  std::array<int64_t, model::kMaxClusters + 1> groups_{};  // before each of the taken ones
  int32_t n_taken_ = 0;
  float best_ = 0;
  // Of a head in order: the row under way, what of it is multiplied, and its logits by place.
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

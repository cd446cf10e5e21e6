// Computes logits for only some clusters of the vocabulary (head_clusters.h). A row's result
// depends on that row alone: not on other rows in the batch, nor on whether the chosen clusters are
// multiplied separately (the head is in memory) or the whole head is (it streams).
//
// The program has an operation of the mode on each side of the multiplication. The first one
// multiplies the chosen clusters and jumps over the other two, if it can. Otherwise the second one
// replaces the logits of all other clusters.
#pragma once

#include <array>
#include <memory>

#include "approximate/head_clusters.h"
#include "session/approximation.h"
#include "session/execution_context.h"
#include "session/weight_stream.h"

namespace sluice::approximate {

class ClusteredHead : public session::Approximation {
 public:
  // With more rows, sharing the cost of packing the whole head is faster.
  static constexpr int32_t kMaxRowsApart = 4;

  // `head`: the multiplication.
  ClusteredHead(HeadClusters clusters, const model::Op& head)
      : clusters_(std::move(clusters)), scale_(head.as<model::MatmulOp>().scale) {}

  // Bytes of scratch per thread.
  [[nodiscard]] static uint64_t scratch_bytes(const model::Mat& head, const kernels::Table& table);

  void attach(const session::ExecutionContext& context) override { cx_ = &context; }
  [[nodiscard]] session::WeightRun run(const model::Op& op,
                                       session::ApproximateRows& rows) override;

 protected:
  // One row of the computation.
  struct Row {
    const float* x;
    float* logits;
    float scale;
    bool known;  // the row already has all logits
  };

  [[nodiscard]] const model::Mat& head() const {
    return cx_->program.mats[static_cast<size_t>(cx_->program.head)];
  }
  [[nodiscard]] Row row_of(const session::ApproximateRows& rows, int32_t t, bool known) const {
    return {rows.in + t * rows.ld_in, rows.out + t * rows.ld_out, scale_, known};
  }
  void run_row(const Row& row);
  // Chooses the most promising clusters.
  void begin_row(const Row& row);
  // Whether a cluster that was not chosen may contain the largest logit.
  [[nodiscard]] bool any_open() const;
  // Chooses further clusters.
  void take_further();
  // Gives tokens that are not multiplied the expected logit of their cluster.
  void finish_row(const Row& row);

  const session::ExecutionContext* cx_ = nullptr;
  HeadClusters clusters_;
  float scale_;
  std::array<int32_t, session::kMaxHeadClusters> taken_{};
  int32_t n_taken_ = 0;
  float best_ = 0;

 private:
  // Whether to multiply only the chosen clusters of so many rows: the weights are in memory, and
  // that is less work than the whole head.
  [[nodiscard]] bool apart(int32_t rows) const;
  void score(const Row& row);
  // Chooses the cluster with the greatest value among those not yet chosen.
  void take(const float* values);
  // Multiplies the tokens of clusters taken_[from] on and updates the largest logit so far.
  void multiply(const Row& row, int32_t from);
  void multiply_group(const Row& row, const int32_t* tokens, int32_t n, int thread) const;

  using Values = std::array<float, session::kMaxHeadClusters>;
  Values scores_{}, cluster_logits_{}, promises_{}, bounds_{};
  std::array<bool, session::kMaxHeadClusters> chosen_{};
  // Row groups before each chosen cluster.
  std::array<int64_t, session::kMaxHeadClusters + 1> groups_{};
};

// Adds the operations to the program. Null: the whole head is multiplied. Errors:
// read_head_clusters'.
[[nodiscard]] Result<std::unique_ptr<session::Approximation>> make_clustered_head(
    const gguf::Header& header, const session::ApproximateOptions& options,
    const kernels::Table& table, int32_t mode, model::Program* program);

// Uses the copy of the output head that the file stores in cluster order, if it has one: then each
// cluster can be read by itself. Null: it does not. Errors: kBadHeader.
[[nodiscard]] Result<std::unique_ptr<session::Approximation>> make_head_in_order(
    const gguf::Header& header, HeadClusters* clusters, int32_t mode, model::Program* program);

}  // namespace sluice::approximate

// A head whose file stores rows in cluster order: multiplies runs of rows, which the weight stream
// finds in memory, waits for, or reads directly.
#include <algorithm>
#include <string>
#include <vector>

#include "approximate/clustered_head.h"
#include "approximate/insert_op.h"
#include "gguf/head_clusters.h"

namespace sluice::approximate {
namespace {

using session::Product;
using session::WeightRun;

class HeadInOrder final : public ClusteredHead {
 public:
  using ClusteredHead::ClusteredHead;

  void attach(const session::ExecutionContext& context) override {
    ClusteredHead::attach(context);
    logits_.resize(clusters_.tokens.size());
    parts_.reserve(static_cast<size_t>(clusters_.n()));
    units_.reserve(context.plan.weights.units.size());
  }

  // The whole multiplication, which the program has next, is jumped over: its weights are requested
  // here, since they are not in the streaming order.
  [[nodiscard]] WeightRun run(const model::Op&, session::ApproximateRows& rows) override {
    const bool few = rows.rows <= kMaxRowsApart;
    const WeightRun ran = few ? run_clusters(rows) : run_whole(rows);
    rows.jumps = ran == WeightRun::kDone;
    return ran;
  }

 private:
  // Multiplies parts_, requesting their units that are missing.
  [[nodiscard]] WeightRun multiply_parts(session::WeightStream& weights) {
    weights.units_to_come(parts_, &units_);
    cx_->weights.residency().set_demand(units_);
    cx_->weights.poll();
    return weights.run(parts_);
  }

  [[nodiscard]] WeightRun run_whole(session::ApproximateRows& rows) {
    if (rows.begins) {
      const kernels::Table& table = cx_->table;
      const int64_t n = head().cols;
      uint8_t* q8 = cx_->working.q8();
      for (int32_t t = 0; t < rows.rows; t += kernels::kActTile) {
        table.quantize_q8(rows.in + t * rows.ld_in, rows.ld_in, n,
                          std::min(kernels::kActTile, rows.rows - t),
                          q8 + static_cast<size_t>(t) * table.q8_bytes(n));
      }
      parts_.assign(1, part(rows.in, rows.ld_in, rows.rows, rows.out, rows.ld_out));
    }
    const WeightRun ran = multiply_parts(*rows.weights);
    if (ran != WeightRun::kDone) return ran;
    for (int32_t t = 0; t < rows.rows; ++t) {
      const Row row = row_of(rows, t, /*known=*/true);
      std::copy_n(row.logits, logits_.size(), logits_.begin());
      for (size_t k = 0; k < logits_.size(); ++k) row.logits[clusters_.tokens[k]] = logits_[k];
    }
    for (int32_t t = 0; t < rows.rows; ++t) run_row(row_of(rows, t, /*known=*/true));
    return WeightRun::kDone;
  }

  [[nodiscard]] WeightRun run_clusters(session::ApproximateRows& rows) {
    if (rows.begins) {
      row_ = 0;
      chosen_ = false;
    }
    for (; row_ < rows.rows; ++row_) {
      const Row row = row_of(rows, row_, /*known=*/false);
      if (!chosen_) {
        begin_row(row);
        from_ = 0;
        choose_parts(row);
        rows.weights->restart();
        chosen_ = true;
      }
      for (;;) {
        const WeightRun ran = multiply_parts(*rows.weights);
        if (ran != WeightRun::kDone) return ran;
        collect(row);
        if (!clusters_.exact || !any_open()) break;
        from_ = n_taken_;
        take_further();
        choose_parts(row);
        rows.weights->restart();
      }
      finish_row(row);
      chosen_ = false;
    }
    return WeightRun::kDone;
  }

  [[nodiscard]] Product part(const float* x, int64_t ld, int32_t n, float* y, int64_t ldy) const {
    Product out;
    out.mat = cx_->program.head;
    out.acts = {x, ld, cx_->working.q8(), n};
    out.y = y;
    out.ldy = ldy;
    out.scale = scale_;
    return out;
  }

  // The rows of clusters taken_[from_] on, merged into runs in file order.
  void choose_parts(const Row& row) {
    const auto taken = taken_.begin() + from_, end = taken_.begin() + n_taken_;
    std::array<int32_t, session::kMaxHeadClusters> sorted;
    const auto last = std::copy(taken, end, sorted.begin());
    std::sort(sorted.begin(), last);
    parts_.clear();
    for (auto i = sorted.begin(); i != last; ++i) {
      const int32_t begins = clusters_.first[static_cast<size_t>(*i)];
      const int32_t ends = clusters_.first[static_cast<size_t>(*i) + 1];
      if (begins == ends) continue;
      if (!parts_.empty() && parts_.back().row1 == begins) {
        parts_.back().row1 = ends;
        continue;
      }
      parts_.push_back(
          part(row.x, head().cols, 1, logits_.data(), static_cast<int64_t>(logits_.size())));
      parts_.back().row0 = begins;
      parts_.back().row1 = ends;
    }
  }

  // Puts the logits that have been multiplied at their tokens.
  void collect(const Row& row) {
    for (int32_t i = from_; i < n_taken_; ++i) {
      const auto cluster = static_cast<size_t>(taken_[static_cast<size_t>(i)]);
      for (auto k = static_cast<size_t>(clusters_.first[cluster]);
           k < static_cast<size_t>(clusters_.first[cluster + 1]); ++k) {
        row.logits[clusters_.tokens[k]] = logits_[k];
        if (logits_[k] > best_) best_ = logits_[k];
      }
    }
  }

  int32_t row_ = 0, from_ = 0;  // the current row, and the first of its clusters in parts_
  bool chosen_ = false;         // its clusters
  std::vector<Product> parts_;
  std::vector<uint32_t> units_;
  std::vector<float> logits_;  // [n_vocab], by cluster
};

}  // namespace

Result<std::unique_ptr<session::Approximation>> make_head_in_order(const gguf::Header& header,
                                                                   HeadClusters* clusters,
                                                                   int32_t mode,
                                                                   model::Program* program) {
  using Made = std::unique_ptr<session::Approximation>;
  model::Program& p = *program;
  const gguf::Tensor* t = header.find_tensor(gguf::kHeadByCluster);
  if (t == nullptr || clusters->most == clusters->n()) return Made();
  model::Mat head = p.mats[static_cast<size_t>(p.head)];
  if (t->n_dims != 2 || t->type != static_cast<gguf::TensorType>(head.type) ||
      t->cols() != static_cast<uint64_t>(head.cols) ||
      t->rows() != static_cast<uint64_t>(head.rows)) {
    return error(Code::kBadHeader,
                 "the tensor %s does not have the type and shape of the output head",
                 std::string(t->name).c_str());
  }
  head.name = std::string(t->name);
  head.file = t->file;
  head.offset = t->offset;
  head.expert = true;
  const auto at = static_cast<size_t>(plain_head(p) - p.ops.data());
  if (p.head != p.embedding) {
    p.mats[static_cast<size_t>(p.head)] = std::move(head);
  } else {
    p.head = static_cast<int32_t>(p.mats.size());
    p.mats.push_back(std::move(head));
    p.ops[at].as<model::MatmulOp>().all[0].mat = p.head;
  }
  clusters->in_order = true;
  model::Op op = p.ops[at];
  Made made = std::make_unique<HeadInOrder>(*clusters, op);
  op.fields = model::ApproximateOp{.mode = mode, .jump = 2};
  insert_op(program, at, op);
  return made;
}

}  // namespace sluice::approximate

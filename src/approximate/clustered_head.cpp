// Rows of a head in the file's layout are gathered a row group at a time for the kernel that packs
// streamed weights on the fly. A logit is then bit-identical to that of the whole multiplication.
#include "approximate/clustered_head.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "approximate/insert_op.h"

namespace sluice::approximate {
namespace {

using session::WeightRun;

// Operations of the mode.
constexpr int32_t kBefore = 0, kAfter = 1;
constexpr int32_t kFurther = 8;  // clusters added at a time after the first ones
// Error bound of rounding a vector to 8 bits, as a fraction of its length: half of a 120th of the
// largest of 32 values, at each of them.
constexpr double kRounding = 0.024;
constexpr double kSums = 1e-4;  // error bound of f32 sums

size_t kernel_scratch(const model::Mat& head, const kernels::Table& table) {
  return round_up_to_line(std::max(table.matmul_scratch(head.type, head.cols),
                                   table.matmul_scratch(kernels::Type::kQ8_0, head.cols)));
}
size_t gathered_bytes(const model::Mat& head, const kernels::Table& table) {
  return round_up_to_line(static_cast<size_t>(table.row_group * head.row_bytes));
}

double length_of(const float* x, int64_t n) {
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * x[i];
  return std::sqrt(squares);
}

}  // namespace

uint64_t ClusteredHead::scratch_bytes(const model::Mat& head, const kernels::Table& table) {
  return kernel_scratch(head, table) + gathered_bytes(head, table) +
         static_cast<size_t>(table.row_group) * sizeof(float);
}

Result<std::unique_ptr<session::Approximation>> make_clustered_head(
    const gguf::Header& header, const session::ApproximateOptions& options,
    const kernels::Table& table, int32_t mode, model::Program* program) {
  using Made = std::unique_ptr<session::Approximation>;
  model::Program& p = *program;
  Result<HeadClusters> clusters =
      read_head_clusters(header, p, options.head, options.skip_layers_ratio);
  if (!clusters.ok()) return clusters.status();
  if (clusters->most == 0) return Made();
  Result<Made> made = make_head_in_order(header, &*clusters, mode, program);
  if (!made.ok()) return made;
  model::Mat& head = p.mats[static_cast<size_t>(p.head)];
  head.plain = true;
  head.share = clusters->share();
  p.approximated.changed = true;
  p.approximated.bytes += clusters->bytes();
  p.approximated.scratch = ClusteredHead::scratch_bytes(head, table);
  if (*made != nullptr) return made;
  const auto at = static_cast<size_t>(plain_head(p) - p.ops.data());
  model::Op op = p.ops[at];
  made = Made(std::make_unique<ClusteredHead>(std::move(*clusters), op));
  op.fields = model::ApproximateOp{.mode = mode, .step = kAfter};
  insert_op(program, at + 1, op);
  for (model::Mark& mark : p.marks) mark.op += mark.op == static_cast<int32_t>(at) ? 1 : 0;
  op.fields = model::ApproximateOp{.mode = mode, .step = kBefore, .jump = 3};
  insert_op(program, at, op);
  return made;
}

bool ClusteredHead::apart(int32_t rows) const {
  if (rows > kMaxRowsApart || clusters_.most == clusters_.n()) return false;
  const residency::Residency& r = cx_->weights.residency();
  const int32_t item = cx_->weights.item_of_mat(cx_->program.head);
  for (uint32_t u = r.plan().first_unit_of(item); u < r.plan().end_unit_of(item); ++u) {
    if (!r.plan().units[u].pinned || !r.ready(u)) return false;
  }
  return true;
}

WeightRun ClusteredHead::run(const model::Op& op, session::ApproximateRows& rows) {
  const bool known = op.as<model::ApproximateOp>().step == kAfter;
  if (!known && !apart(rows.rows)) return WeightRun::kDone;
  for (int32_t t = 0; t < rows.rows; ++t) run_row(row_of(rows, t, known));
  if (known) return WeightRun::kDone;
  residency::Residency& r = cx_->weights.residency();
  r.advance_past(r.plan().end_unit_of(cx_->weights.item_of_mat(cx_->program.head)) - 1);
  rows.jumps = true;
  return WeightRun::kDone;
}

void ClusteredHead::run_row(const Row& row) {
  begin_row(row);
  multiply(row, 0);
  while (clusters_.exact && any_open()) {
    const int32_t from = n_taken_;
    take_further();
    multiply(row, from);
  }
  finish_row(row);
}

void ClusteredHead::begin_row(const Row& row) {
  score(row);
  chosen_.fill(false);
  n_taken_ = 0;
  best_ = -HUGE_VALF;
  while (n_taken_ < clusters_.most) take(promises_.data());
}

// A NaN compares as not below best_, so all tokens are multiplied then.
bool ClusteredHead::any_open() const {
  for (size_t i = 0; i < static_cast<size_t>(clusters_.n()); ++i) {
    if (!chosen_[i] && !(bounds_[i] < best_)) return true;
  }
  return false;
}

void ClusteredHead::take_further() {
  const int32_t end = std::min(n_taken_ + kFurther, clusters_.n());
  while (n_taken_ < end) take(bounds_.data());
}

void ClusteredHead::finish_row(const Row& row) {
  const HeadClusters& c = clusters_;
  session::HeadCounts& counts = cx_->approximate.head;
  ++counts.rows;
  if (!any_open()) ++counts.known;
  // Estimated logits stay below the largest computed one.
  const float limit = std::nextafter(best_, -HUGE_VALF);
  for (int32_t i = 0; i < c.n(); ++i) {
    const auto at = static_cast<size_t>(i);
    if (chosen_[at]) {
      counts.products += static_cast<uint64_t>(c.first[at + 1] - c.first[at]);
      continue;
    }
    const float logit = std::min(limit, cluster_logits_[at]);
    for (int32_t k = c.first[at]; k < c.first[at + 1]; ++k) {
      row.logits[c.tokens[static_cast<size_t>(k)]] = logit;
    }
  }
}

// Computes each cluster's score (the logit of its centre), the expected logit of its tokens, the
// expected largest one, and an upper bound.
void ClusteredHead::score(const Row& row) {
  const HeadClusters& c = clusters_;
  const kernels::Table& table = cx_->table;
  const model::Mat& m = head();
  uint8_t* q8 = cx_->working.q8();
  table.quantize_q8(row.x, m.cols, m.cols, 1, q8);
  kernels::MatmulArgs args{};
  args.w = {kernels::Type::kQ8_0, false, c.n(), m.cols, c.centres.data()};
  args.x = {row.x, m.cols, q8, 1};
  args.scale = row.scale;
  args.y = scores_.data();
  args.ldy = c.n();
  const int64_t step = std::max<int64_t>(1, 64 / table.row_group) * table.row_group;
  cx_->pool.parallel_for((c.n() + step - 1) / step, [&](int64_t task, int thread) {
    kernels::MatmulArgs part = args;
    part.r0 = task * step;
    part.r1 = std::min<int64_t>(part.r0 + step, c.n());
    part.scratch = cx_->working.scratch(thread);
    table.matmul(part);
  });
  const bool rounded = table.act_format(m.type) == kernels::ActFormat::kQ8;
  const double length = length_of(row.x, m.cols);
  for (int32_t i = 0; i < c.n(); ++i) {
    const auto at = static_cast<size_t>(i);
    const double radius = c.radii[at], centre = c.lengths[at];
    // The product with a vector at distance `radius` in a random direction is normally distributed;
    // this is the logarithm of the mean of its exp.
    const double spread = static_cast<double>(row.scale) * length * radius;
    cluster_logits_[at] =
        scores_[at] + static_cast<float>(spread * spread / (2 * static_cast<double>(m.cols)));
    promises_[at] = scores_[at] + row.scale * static_cast<float>(length) * c.reaches[at];
    const double within = (1 + kRounding) * radius + (rounded ? 0 : kRounding) * centre;
    bounds_[at] = static_cast<float>(static_cast<double>(scores_[at]) +
                                     static_cast<double>(row.scale) * length *
                                         (within + kSums * (radius + centre)));
  }
}

void ClusteredHead::take(const float* values) {
  int32_t best = -1;
  for (int32_t i = 0; i < clusters_.n(); ++i) {
    if (!chosen_[static_cast<size_t>(i)] && (best < 0 || values[i] > values[best])) best = i;
  }
  chosen_[static_cast<size_t>(best)] = true;
  taken_[static_cast<size_t>(n_taken_++)] = best;
}

void ClusteredHead::multiply(const Row& row, int32_t from) {
  const HeadClusters& c = clusters_;
  const int64_t group = cx_->table.row_group;
  const auto begin = [&](int64_t i) {
    return c.first[static_cast<size_t>(taken_[static_cast<size_t>(i)])];
  };
  const auto end = [&](int64_t i) {
    return c.first[static_cast<size_t>(taken_[static_cast<size_t>(i)]) + 1];
  };
  int64_t total = 0;
  for (int32_t i = from; i < n_taken_; ++i) {
    groups_[static_cast<size_t>(i)] = total;
    total += (end(i) - begin(i) + group - 1) / group;
  }
  const int64_t each = std::max<int64_t>(1, session::kTaskWork / (group * head().cols));
  if (!row.known) {
    cx_->pool.parallel_for((total + each - 1) / each, [&](int64_t task, int thread) {
      int64_t i = from;
      for (int64_t g = task * each; g < std::min(total, (task + 1) * each); ++g) {
        while (i + 1 < n_taken_ && groups_[static_cast<size_t>(i) + 1] <= g) ++i;
        const int64_t at = begin(i) + (g - groups_[static_cast<size_t>(i)]) * group;
        const int64_t n = std::min<int64_t>(group, end(i) - at);
        multiply_group(row, c.tokens.data() + at, static_cast<int32_t>(n), thread);
      }
    });
  }
  for (int32_t i = from; i < n_taken_; ++i) {
    for (int32_t k = begin(i); k < end(i); ++k) {
      const float logit = row.logits[c.tokens[static_cast<size_t>(k)]];
      if (logit > best_) best_ = logit;
    }
  }
}

void ClusteredHead::multiply_group(const Row& row, const int32_t* tokens, int32_t n,
                                   int thread) const {
  const model::Mat& m = head();
  const kernels::Table& table = cx_->table;
  const residency::Residency& r = cx_->weights.residency();
  const uint32_t first = r.plan().first_unit_of(cx_->weights.item_of_mat(cx_->program.head));
  const int64_t rows_of_unit = r.plan().units[first].rows;
  uint8_t* scratch = cx_->working.scratch(thread);
  uint8_t* gathered = scratch + kernel_scratch(m, table);
  auto* y = reinterpret_cast<float*>(gathered + gathered_bytes(m, table));
  for (int32_t i = 0; i < n; ++i) {
    const uint32_t unit = first + static_cast<uint32_t>(tokens[i] / rows_of_unit);
    std::memcpy(gathered + i * m.row_bytes, r.data(unit) + tokens[i] % rows_of_unit * m.row_bytes,
                static_cast<size_t>(m.row_bytes));
  }
  kernels::MatmulArgs args{};
  args.w = {m.type, false, n, m.cols, gathered};
  args.r1 = n;
  args.x = {row.x, m.cols, cx_->working.q8(), 1};
  args.scale = row.scale;
  args.y = y;
  args.ldy = n;
  args.scratch = scratch;
  table.matmul(args);
  for (int32_t i = 0; i < n; ++i) row.logits[tokens[i]] = y[i];
}

}  // namespace sluice::approximate

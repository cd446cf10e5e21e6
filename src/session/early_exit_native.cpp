// Computes exit features, decides which rows exit, and demands the weights they still need.
#include <algorithm>
#include <array>
#include <cmath>

#include "session/early_exit.h"

namespace sluice::session {

using model::Buf;

ExitFeatures exit_features(const float* before, const float* now, int64_t n) {
  constexpr double kMin = 1e-12;
  double ww = 0, wx = 0, xx = 0, fourth = 0, peak = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double w = before[i], x = now[i], square = x * x;
    ww += w * w;
    wx += w * x;
    xx += square;
    fourth += square * square;
    peak = std::max(peak, square);
  }
  const double count = static_cast<double>(n), mean = xx / count + kMin;
  const double cosine = wx / std::sqrt(ww * xx + kMin);
  const auto log = [](double x) { return static_cast<float>(std::log(x)); };
  return {1,         log(std::max(1 - cosine, 1e-6)), log((xx + kMin) / (ww + kMin)) / 2,
          log(mean), log(peak / mean + kMin) / 2,     log(fourth / count / (mean * mean) + kMin)};
}

void EarlyExit::reserve() {
  if (exits().needed.empty()) return;
  left_.reserve(static_cast<size_t>(engine_.largest_batch()));
  demand_.reserve(engine_.plan().weights.units.size());
}

void EarlyExit::begin(int32_t rows, bool on) {
  on_ = on && !exits().needed.empty();
  rows_ = rows;
  n_left_ = 0;
  if (on_) left_.assign(static_cast<size_t>(rows), 0);
}

bool EarlyExit::leaves(int32_t layer, const float* before, const float* now) const {
  const model::EarlyExits& e = exits();
  const ExitWatch& watch = engine_.exit_watch();
  const bool measures = e.weights.empty();
  if (measures ? watch.leaves == nullptr : e.may[static_cast<size_t>(layer)] == 0) return false;
  const ExitFeatures features = exit_features(before, now, engine_.program().hp.n_embd);
  if (measures) return watch.leaves(watch.context, layer, features);
  const float* weights = e.weights.data() + layer * model::kExitFeatures;
  double score = 0;
  for (size_t i = 0; i < features.size(); ++i) score += double{weights[i]} * double{features[i]};
  return score >= e.least;
}

void EarlyExit::layer_done(int32_t layer, bool last) {
  ExitCounts& counts = engine_.exit_counts();
  if (!all_left()) {
    const int64_t n = engine_.program().hp.n_embd, ld = engine_.width(Buf::kX);
    if (layer >= 0) counts.layers += static_cast<uint64_t>(rows_);
    for (int32_t row = 0; row < rows_; ++row) {
      uint8_t& left = left_[static_cast<size_t>(row)];
      float* x = engine_.working().buffer(Buf::kX) + row * ld;
      float* kept = x + exits().kept;
      if (left != 0) {
        std::copy_n(kept, n, x);
        continue;
      }
      if (layer >= 0 && leaves(layer, kept, x)) {
        left = 1;
        ++n_left_;
      }
      std::copy_n(x, n, kept);
    }
    if (all_left() && !last) announce(layer);
  }
  if (!last) return;
  counts.rows += static_cast<uint64_t>(rows_);
  counts.left += static_cast<uint64_t>(n_left_);
}

bool EarlyExit::skips(size_t op) const {
  if (!all_left() || op >= exits().needed.size()) return false;
  const int32_t needed = exits().needed[op];
  return needed == model::kLeftOut ||
         (needed == model::kForQueries && engine_.plan().kv_plan.slots == 0);
}

int32_t EarlyExit::first_column(size_t op) const {
  if (!all_left() || op >= exits().needed.size() || engine_.plan().kv_plan.slots > 0) return 0;
  return std::max(0, exits().needed[op]);
}

// Prefetch follows the order of a full pass and would mostly read skipped weights. So all weights
// that the exited rows still need are demanded explicitly; a unit that is not in the demand would
// find no slot.
void EarlyExit::announce(int32_t layer) {
  const model::Program& p = engine_.program();
  if (engine_.residency().plan().streamed_bytes == 0) return;
  demand_.clear();
  size_t i = 0;
  while (p.ops[i].layer <= layer) ++i;  // another layer follows
  for (; i < exits().needed.size(); ++i) {
    if (skips(i)) continue;
    if (const auto* product = p.ops[i].get<model::MatmulOp>()) {
      for (const model::MatPart& part : product->parts()) {
        if (part.out_col >= first_column(i)) demand(part.mat);
      }
    } else if (const auto* by_head = p.ops[i].get<model::HeadMatmulOp>()) {
      for (const int32_t mat : p.by_head[static_cast<size_t>(by_head->by_head)]) demand(mat);
    }
  }
  engine_.residency().set_demand(demand_);
}

void EarlyExit::demand(int32_t mat) {
  const residency::Residency& r = engine_.residency();
  const int32_t item = engine_.item_of_mat(mat);
  for (uint32_t unit = r.first_unit(item); unit < r.end_unit(item); ++unit) {
    if (r.streams_in_order(unit)) demand_.push_back(unit);
  }
}

}  // namespace sluice::session

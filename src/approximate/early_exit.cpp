// Computes exit features, decides which rows exit, and demands the weights they still need.
#include "approximate/early_exit.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "gguf/early_exit.h"
#include "session/execution_context.h"
#include "session/weight_stream.h"

namespace sluice::approximate {
namespace {

using session::WeightRun;

constexpr float kMaxWeight = 1e6f;

Status read_weights(const gguf::Header& header, const model::Program& p, std::vector<float>* out) {
  const std::string key(gguf::kExitWeights);
  const gguf::Value* value = header.find(key);
  if (value == nullptr) {
    return error(
        Code::kInvalidArgument,
        "early exit needs weights that sluice convert --calibrate measures, which this file "
        "does not have");
  }
  const uint64_t n = static_cast<uint64_t>(p.hp.n_layer) * uint64_t{kExitFeatures};
  if (value->type != gguf::ValueType::kArray || value->element != gguf::ValueType::kF32 ||
      value->count != n) {
    return error(Code::kBadHeader, "the metadata value %s does not have %d numbers per layer",
                 key.c_str(), kExitFeatures);
  }
  out->reserve(n);
  for (uint64_t i = 0; i < n; ++i) {
    const auto weight = static_cast<float>(value->number_at(i));
    if (!(std::abs(weight) <= kMaxWeight)) {
      return error(Code::kBadHeader, "the metadata value %s has a weight out of range",
                   key.c_str());
    }
    out->push_back(weight);
  }
  return {};
}

class EarlyExit final : public session::Approximation {
 public:
  EarlyExit(double least, std::vector<float> weights, ExitLayers layers, int32_t mode)
      : least_(least), weights_(std::move(weights)), layers_(std::move(layers)), mode_(mode) {}

  void attach(const session::ExecutionContext& context) override {
    cx_ = &context;
    left_.reserve(static_cast<size_t>(context.largest_batch));
    demand_.reserve(context.plan.weights.units.size());
  }

  [[nodiscard]] WeightRun run(const model::Op& op, session::ApproximateRows& rows) override {
    if (!rows.logits) return WeightRun::kDone;
    const auto step = static_cast<ExitStep>(op.as<model::ApproximateOp>().step);
    if (step == ExitStep::kBegin) {
      n_left_ = 0;
      left_.assign(static_cast<size_t>(rows.rows), 0);
    }
    if (step != ExitStep::kJoin) settle_rows(op.layer, rows);
    const bool all = n_left_ == rows.rows;
    if (step == ExitStep::kLayer && all) announce(rows.at);
    rows.jumps = all && (step == ExitStep::kLayer || step == ExitStep::kJoin);
    if (step == ExitStep::kLast || step == ExitStep::kJoin) {
      session::ExitCounts& counts = cx_->approximate.exits;
      counts.rows += static_cast<uint64_t>(rows.rows);
      counts.left += static_cast<uint64_t>(n_left_);
    }
    return WeightRun::kDone;
  }

 private:
  [[nodiscard]] bool leaves(int32_t layer, const float* before, const float* now) const {
    const session::ExitWatch& watch = cx_->approximate.watch;
    const bool measures = weights_.empty();
    if (measures ? watch.leaves == nullptr : layers_.may[static_cast<size_t>(layer)] == 0) {
      return false;
    }
    const ExitFeatures features = exit_features(before, now, cx_->program.hp.n_embd);
    if (measures) return watch.leaves(watch.context, layer, features);
    const float* weights = weights_.data() + layer * kExitFeatures;
    double score = 0;
    for (size_t i = 0; i < features.size(); ++i) {
      score += double{weights[i]} * double{features[i]};
    }
    return score >= least_;
  }

  // After a layer (-1: before the first): restores rows that have exited, and keeps the others.
  void settle_rows(int32_t layer, const session::ApproximateRows& rows) {
    const int64_t n = cx_->program.hp.n_embd;
    if (layer >= 0) cx_->approximate.exits.layers += static_cast<uint64_t>(rows.rows);
    for (int32_t row = 0; row < rows.rows; ++row) {
      uint8_t& left = left_[static_cast<size_t>(row)];
      float* x = rows.out + row * rows.ld_out;
      float* kept = x + layers_.kept;
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
  }

  // Prefetch follows the order of a full pass and would mostly read skipped weights. So all weights
  // that the exited rows still need are demanded explicitly; a unit that is not in the demand would
  // find no slot.
  void announce(size_t at) {
    const model::Program& p = cx_->program;
    if (cx_->weights.residency().plan().streamed_bytes == 0) return;
    demand_.clear();
    size_t i = target(at);
    while (i != static_cast<size_t>(p.pool)) {
      if (const auto* product = p.ops[i].get<model::MatmulOp>()) {
        for (const model::MatPart& part : product->parts()) demand(part.mat);
      } else if (const auto* by_head = p.ops[i].get<model::HeadMatmulOp>()) {
        for (const int32_t mat : p.by_head[static_cast<size_t>(by_head->by_head)]) demand(mat);
      }
      const auto* own = p.ops[i].get<model::ApproximateOp>();
      i = own != nullptr && own->mode == mode_ ? target(i) : i + 1;
    }
    cx_->weights.residency().set_demand(demand_);
  }

  [[nodiscard]] size_t target(size_t at) const {
    const int32_t jump = cx_->program.ops[at].as<model::ApproximateOp>().jump;
    return static_cast<size_t>(static_cast<ptrdiff_t>(at) + jump);
  }

  void demand(int32_t mat) {
    const residency::Residency& r = cx_->weights.residency();
    const int32_t item = cx_->weights.item_of_mat(mat);
    for (uint32_t unit = r.plan().first_unit_of(item); unit < r.plan().end_unit_of(item); ++unit) {
      if (r.streams_in_order(unit)) demand_.push_back(unit);
    }
  }

  const session::ExecutionContext* cx_ = nullptr;
  const double least_;                // score at which a row exits: log(p / (1 - p))
  const std::vector<float> weights_;  // [n_layer][kExitFeatures]; empty: measuring
  const ExitLayers layers_;
  const int32_t mode_;
  int32_t n_left_ = 0;
  std::vector<uint8_t> left_;     // by row of the batch: it has exited
  std::vector<uint32_t> demand_;  // units
};

}  // namespace

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

Result<std::unique_ptr<session::Approximation>> make_early_exit(const gguf::Header& header,
                                                                const session::ExitPolicy& policy,
                                                                bool observes, int32_t mode,
                                                                model::Program* program) {
  using Made = std::unique_ptr<session::Approximation>;
  if (!policy.on()) return Made();
  const double p = policy.confidence;
  if (!(p >= 0 && p <= 1)) {
    return error(Code::kInvalidArgument, "the confidence of early exit must be between 0 and 1");
  }
  const double least = std::log(p / (1 - p));
  std::vector<float> weights;
  if (!policy.measures) SLUICE_RETURN_IF_ERROR(read_weights(header, *program, &weights));
  Result<ExitLayers> layers = add_exits(program, mode, observes);
  if (!layers.ok()) return layers.status();
  model::Approximated& approximated = program->approximated;
  approximated.changed = true;
  approximated.identity.push_back(__builtin_bit_cast(uint64_t, least));
  for (const float weight : weights) {
    approximated.identity.push_back(__builtin_bit_cast(uint32_t, weight));
  }
  return Made(std::make_unique<EarlyExit>(least, std::move(weights), std::move(*layers), mode));
}

}  // namespace sluice::approximate

// Finds the operations that compute each layer's keys and values: those before its attention,
// traced backwards from what it stores.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "gguf/early_exit.h"
#include "model/early_exit.h"
#include "model/program.h"

namespace sluice::model {
namespace {

constexpr float kMaxWeight = 1e6f;
// Layers that every row computes before it may exit, and layers that must remain after an exit for
// it to be worth it.
constexpr size_t kMinBefore = 2, kMinAfter = 2;

using Buffers = std::array<bool, kBufCount>;
bool& at(Buffers& buffers, Buf buf) {
  return buffers[static_cast<size_t>(buf)];
}

// Kinds that read and write only what `in`, `out` and their parts say, row by row.
bool is_plain(const Op& op) {
  switch (op.kind()) {
    case OpKind::kNorm:
    case OpKind::kMatmul:
    case OpKind::kRope:
    case OpKind::kClamp:
    case OpKind::kCopy:
    case OpKind::kScale:
    case OpKind::kMulVec:
    case OpKind::kHeadMatmul:
    case OpKind::kTemperature:
    case OpKind::kSoftCap:
    case OpKind::kSelect:
      return true;
    default:
      return false;
  }
}

// One past the last column that an operation writes; INT64_MAX for other kinds.
int64_t end_column(const Program& p, const Op& op) {
  if (const auto* product = op.get<MatmulOp>()) {
    int64_t end = 0;
    for (const MatPart& part : product->parts()) {
      end = std::max(end, part.out_col + p.mats[static_cast<size_t>(part.mat)].rows);
    }
    return end;
  }
  if (const auto* norm = op.get<NormOp>()) return op.out_col + int64_t{norm->heads} * op.n;
  if (const auto* copy = op.get<CopyOp>()) {
    return op.out_col + int64_t{copy->out_step} * (copy->heads - 1) + op.n;
  }
  if (op.is<TemperatureOp>()) return op.out_col + op.n;
  return INT64_MAX;
}

class Layers {
 public:
  explicit Layers(Program& p) : p_(p), needed_(static_cast<size_t>(p.pool), 0) {}

  // False if early exit is not possible in this model.
  [[nodiscard]] bool find() {
    if (!p_.hp.causal || p_.decoder > 0 || p_.head < 0) return false;
    if (!std::all_of(p_.ops.begin(), p_.ops.end(), [this](const Op& op) { return stays(op); })) {
      return false;
    }
    size_t i = 0;
    while (i < needed_.size() && p_.ops[i].layer < 0) ++i;
    while (i < needed_.size() && p_.ops[i].layer >= 0) {
      const size_t first = i;
      while (i < needed_.size() && p_.ops[i].layer == p_.ops[first].layer) ++i;
      if (!layers_.empty() && p_.ops[first].layer <= layers_.back()) return false;
      layers_.push_back(p_.ops[first].layer);
      if (!one(first, i)) return false;
    }
    Buffers there{};
    return follows(i, needed_.size(), there);
  }

  void finish(EarlyExits* out) {
    out->needed = std::move(needed_);
    out->may.assign(static_cast<size_t>(p_.hp.n_layer), 0);
    for (size_t i = kMinBefore - 1; i + kMinAfter < layers_.size(); ++i) {
      out->may[static_cast<size_t>(layers_[i])] = 1;
    }
    int64_t& width = p_.width[static_cast<size_t>(Buf::kX)];
    out->kept = static_cast<int32_t>(width);
    width += p_.hp.n_embd;
  }

 private:
  // Whether the residual stream is n_embd columns of kX, and the operation carries no state between
  // tokens beyond the KV cache.
  [[nodiscard]] bool stays(const Op& op) const {
    const bool beside =
        (op.in == Buf::kX && op.in_col > 0) || (op.out == Buf::kX && op.out_col > 0);
    return op.carried() == nullptr && !beside && !op.is<RowsOp>();
  }

  // Whether the needed operations among [first, end) read only the residual stream and each other's
  // outputs, and do not change the stream.
  [[nodiscard]] bool follows(size_t first, size_t end, Buffers there) const {
    at(there, Buf::kX) = true;
    for (size_t i = first; i < end; ++i) {
      const Op& op = p_.ops[i];
      if (needed_[i] == kLeftOut || op.is<AttentionOp>()) continue;
      const auto* product = op.get<MatmulOp>();
      const bool adds = product != nullptr && product->add;
      if (!is_plain(op) || !at(there, op.in) || (adds && !at(there, op.out))) return false;
      if (op.out == Buf::kX && !op.is<SelectOp>()) return false;
      at(there, op.out) = true;
    }
    return true;
  }

  // Analyses the operations [first, end) of a layer.
  [[nodiscard]] bool one(size_t first, size_t end) {
    size_t attention = end;
    for (size_t i = first; i < end; ++i) {
      needed_[i] = kLeftOut;
      if (p_.ops[i].is<StoreOp>() || p_.ops[i].is<CrossOp>()) return false;
      if (!p_.ops[i].is<AttentionOp>()) continue;
      if (attention < end) return false;
      attention = i;
    }
    if (attention == end) return false;
    needed_[attention] = 0;
    const AttentionShape& att = p_.ops[attention].as<AttentionOp>().att;
    if (!att.owned_by(p_.ops[attention].layer)) return true;  // another layer stores them
    mark(first, attention, att, kForQueries);
    mark(first, attention, att, 0);
    return follows(first, attention, {});
  }

  // Marks the operations that compute an attention's keys and values; with kForQueries, also its
  // queries.
  void mark(size_t first, size_t attention, const AttentionShape& att, int32_t as) {
    Buffers wanted{};
    at(wanted, Buf::kQkv) = true;
    for (size_t i = attention; i-- > first;) {
      const Op& op = p_.ops[i];
      if (!at(wanted, op.out)) continue;
      const bool keys = op.out != Buf::kQkv || end_column(p_, op) > att.keys();
      if (as == 0 && !keys) continue;
      needed_[i] = as == 0 ? from_column(op, att) : as;
      at(wanted, op.in) = true;
    }
  }

  // Separate parts for queries, keys and values: the queries' part is not needed.
  [[nodiscard]] static int32_t from_column(const Op& op, const AttentionShape& att) {
    return op.is<MatmulOp>() && op.out == Buf::kQkv && op.out_col == 0 ? att.keys() : 0;
  }

  Program& p_;
  std::vector<int32_t> needed_;
  std::vector<int32_t> layers_;
};

// A multiplication with a part that straddles the first key is computed in full.
void settle_columns(const Program& p, std::vector<int32_t>* needed) {
  for (size_t i = 0; i < needed->size(); ++i) {
    int32_t& from = (*needed)[i];
    if (from <= 0) continue;
    for (const MatPart& part : p.ops[i].as<MatmulOp>().parts()) {
      const int64_t end = part.out_col + p.mats[static_cast<size_t>(part.mat)].rows;
      if (part.out_col < from && end > from) from = 0;
    }
  }
}

Status read_weights(const gguf::Header& header, const Program& p, std::vector<float>* out) {
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

}  // namespace

Status add_early_exits(const gguf::Header& header, const ExitPolicy& policy, Program* program) {
  if (!policy.on()) return {};
  const double p = policy.confidence;
  if (!(p >= 0 && p <= 1)) {
    return error(Code::kInvalidArgument, "the confidence of early exit must be between 0 and 1");
  }
  EarlyExits out;
  out.least = std::log(p / (1 - p));
  if (!policy.measures) SLUICE_RETURN_IF_ERROR(read_weights(header, *program, &out.weights));
  Layers layers(*program);
  if (!layers.find()) {
    return error(
        Code::kInvalidArgument,
        "early exit is not supported for this \"%s\" model: its layers carry more state than "
        "the KV cache, or it is not causal",
        program->hp.arch.c_str());
  }
  layers.finish(&out);
  settle_columns(*program, &out.needed);
  program->exits = std::move(out);
  return {};
}

}  // namespace sluice::model

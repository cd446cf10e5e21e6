// Finds the operations that compute each layer's keys and values: those before its attention,
// traced backwards from what it stores. Copies them behind the program.
#include <algorithm>
#include <array>
#include <limits>

#include "approximate/early_exit.h"
#include "approximate/insert_op.h"

namespace sluice::approximate {
namespace {

using model::AttentionOp;
using model::AttentionShape;
using model::Buf;
using model::kBufCount;
using model::MatmulOp;
using model::MatPart;
using model::Op;
using model::OpKind;
using model::Program;

// What an operation still computes for rows that have exited.
constexpr int32_t kLeftOut = -1;     // nothing
constexpr int32_t kForQueries = -2;  // nothing, unless observer queries are stored
// >= 0: all of it; for a matrix multiplication, its parts from that column of `out` on.

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
  if (const auto* norm = op.get<model::NormOp>()) return op.out_col + int64_t{norm->heads} * op.n;
  if (const auto* copy = op.get<model::CopyOp>()) {
    return op.out_col + int64_t{copy->out_step} * (copy->heads - 1) + op.n;
  }
  if (op.is<model::TemperatureOp>()) return op.out_col + op.n;
  return INT64_MAX;
}

class Analysis {
 public:
  explicit Analysis(const Program& p) : p_(p), needed_(static_cast<size_t>(p.pool), 0) {}

  // False if early exit is not possible in this model.
  [[nodiscard]] bool find() {
    if (!p_.hp.attention.causal || p_.decoder > 0 || p_.head < 0) return false;
    if (!std::all_of(p_.ops.begin(), p_.ops.end(), [this](const Op& op) { return stays(op); })) {
      return false;
    }
    size_t i = 0;
    while (i < needed_.size() && p_.ops[i].layer < 0) ++i;
    first_ = i;
    while (i < needed_.size() && p_.ops[i].layer >= 0) {
      const size_t first = i;
      while (i < needed_.size() && p_.ops[i].layer == p_.ops[first].layer) ++i;
      if (!layers_.empty() && p_.ops[first].layer <= layers_.back()) return false;
      layers_.push_back(p_.ops[first].layer);
      ends_.push_back(i);
      if (!one(first, i)) return false;
    }
    Buffers there{};
    return follows(i, needed_.size(), there);
  }

  [[nodiscard]] std::vector<uint8_t> may() const {
    std::vector<uint8_t> out(static_cast<size_t>(p_.hp.n_layer), 0);
    for (size_t i = kMinBefore - 1; i + kMinAfter < layers_.size(); ++i) {
      out[static_cast<size_t>(layers_[i])] = 1;
    }
    return out;
  }
  // One past each layer's last operation, and the first operation of the first layer.
  [[nodiscard]] const std::vector<size_t>& ends() const { return ends_; }
  [[nodiscard]] size_t first() const { return first_; }
  // What the layer that ends at ends()[i] still computes for rows that have exited.
  [[nodiscard]] std::vector<Op> rest(size_t i, bool observes) const {
    std::vector<Op> out;
    for (size_t at = i == 0 ? first_ : ends_[i - 1]; at < ends_[i]; ++at) {
      Op op = p_.ops[at];
      const int32_t needed = needed_[at];
      if (needed == kLeftOut || (needed == kForQueries && !observes)) continue;
      if (const auto* attention = op.get<AttentionOp>()) {
        op.fields = model::FillOp{*attention};
      } else if (needed > 0 && !observes) {
        drop_parts(needed, &op.as<MatmulOp>());
      }
      out.push_back(op);
    }
    return out;
  }

 private:
  // Whether the residual stream is n_embd columns of kX, and the operation carries no state between
  // tokens beyond the KV cache.
  [[nodiscard]] bool stays(const Op& op) const {
    const bool beside =
        (op.in == Buf::kX && op.in_col > 0) || (op.out == Buf::kX && op.out_col > 0);
    return op.carried() == nullptr && !beside && !op.is<model::RowsOp>();
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
      if (op.out == Buf::kX && !op.is<model::SelectOp>()) return false;
      at(there, op.out) = true;
    }
    return true;
  }

  // Analyses the operations [first, end) of a layer.
  [[nodiscard]] bool one(size_t first, size_t end) {
    size_t attention = end;
    for (size_t i = first; i < end; ++i) {
      needed_[i] = kLeftOut;
      if (p_.ops[i].is<model::StoreOp>() || p_.ops[i].is<model::CrossOp>()) return false;
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
  // A multiplication with a part that straddles the first key is computed in full.
  [[nodiscard]] int32_t from_column(const Op& op, const AttentionShape& att) const {
    const auto* product = op.get<MatmulOp>();
    if (product == nullptr || op.out != Buf::kQkv || op.out_col != 0) return 0;
    for (const MatPart& part : product->parts()) {
      const int64_t end = part.out_col + p_.mats[static_cast<size_t>(part.mat)].rows;
      if (part.out_col < att.keys() && end > att.keys()) return 0;
    }
    return att.keys();
  }
  // Keeps a multiplication's parts from that column of its output on.
  static void drop_parts(int32_t from, MatmulOp* product) {
    int32_t n = 0;
    for (const MatPart& part : product->parts()) {
      if (part.out_col >= from) product->all[static_cast<size_t>(n++)] = part;
    }
    product->n_parts = n;
  }

  const Program& p_;
  std::vector<int32_t> needed_;
  std::vector<int32_t> layers_;
  size_t first_ = 0;
  std::vector<size_t> ends_;
};

Status unsupported(const Program& program) {
  return error(
      Code::kInvalidArgument,
      "early exit is not supported for this \"%s\" model: its layers carry more state than "
      "the KV cache, or it is not causal",
      program.hp.arch.c_str());
}

}  // namespace

Result<std::vector<uint8_t>> exit_layers(const Program& program) {
  Analysis layers(program);
  if (!layers.find()) return unsupported(program);
  return layers.may();
}

Result<ExitLayers> add_exits(Program* program, int32_t mode, bool observes) {
  Program& p = *program;
  Analysis layers(p);
  if (!layers.find()) return unsupported(p);
  ExitLayers out;
  out.may = layers.may();
  int64_t& width = p.width[static_cast<size_t>(Buf::kX)];
  out.kept = static_cast<int32_t>(width);
  width += p.hp.n_embd;

  const std::vector<size_t> ends = layers.ends();
  const size_t n = ends.size(), first = layers.first();
  std::vector<Op> rest;
  std::vector<size_t> rest_of(n);  // where each layer's begins in it
  std::vector<int32_t> numbers(n);
  for (size_t i = 0; i < n; ++i) {
    numbers[i] = p.ops[ends[i] - 1].layer;
    rest_of[i] = rest.size();
    if (i == 0) continue;  // the rows exit behind it
    const std::vector<Op> own = layers.rest(i, observes);
    rest.insert(rest.end(), own.begin(), own.end());
  }
  const auto make = [mode](int32_t layer, ExitStep step, int32_t jump) {
    Op op;
    op.layer = layer;
    op.fields = model::ApproximateOp{mode, static_cast<int32_t>(step), jump};
    return op;
  };
  const size_t copies = p.ops.size() + n + 1;
  insert_op(program, first, make(-1, ExitStep::kBegin, 0));
  for (size_t i = 0; i < n; ++i) {  // after those before it
    const ExitStep step = i + 1 < n ? ExitStep::kLayer : ExitStep::kLast;
    insert_op(program, ends[i] + i + 1, make(numbers[i], step, 0));
  }
  const auto distance = [](size_t from, size_t to) {
    return static_cast<int32_t>(static_cast<ptrdiff_t>(to) - static_cast<ptrdiff_t>(from));
  };
  for (size_t i = 0; i + 1 < n; ++i) {  // once all operations are in their places
    const size_t at = ends[i] + i + 1;
    p.ops[at].as<model::ApproximateOp>().jump = distance(at, copies + rest_of[i + 1]);
  }
  const size_t behind = ends[n - 1] + n + 1, join = copies + rest.size();
  p.ops.insert(p.ops.end(), rest.begin(), rest.end());
  p.ops.push_back(make(-1, ExitStep::kJoin, distance(join, behind)));
  return out;
}

}  // namespace sluice::approximate

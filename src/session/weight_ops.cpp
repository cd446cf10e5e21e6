// Operations that need weights and can block: they request what is missing, record their progress
// and go on there. Also the dispatch of all operations.
#include "session/attention.h"
#include "session/cpu_executor.h"
#include "session/nextn.h"
#include "session/ops.h"

namespace sluice::session {

using model::Buf;
using model::Op;
using model::OpKind;

bool CpuExecutor::vectors_ready(const Op& op) {
  for (const int32_t v : op.vecs()) {
    if (!feed_.need_vec(v)) return false;
  }
  if (const auto* mixture = op.get<model::MoeOp>()) {
    for (const int32_t v : cx_.program.moes[static_cast<size_t>(mixture->moe)].vecs()) {
      if (!feed_.need_vec(v)) return false;
    }
  }
  if (const auto* product = op.get<model::MatmulOp>()) {
    for (const model::MatPart& part : product->parts()) {
      if (!feed_.need_vec(part.bias) || !feed_.need_vec(part.factor)) return false;
    }
  }
  return true;
}

bool CpuExecutor::run_op(const Op& op) {
  if (!cursor_.started && !vectors_ready(op)) return false;
  switch (op.kind()) {
    case OpKind::kEmbed:
      return op_embed(op);
    case OpKind::kNorm:
      op_norm(cx_, op);
      return true;
    case OpKind::kMatmul:
      return op_matmul(op);
    case OpKind::kRope:
      cx_.for_lanes([&] { op_rope(cx_, op); });
      return true;
    case OpKind::kAttention:
      cx_.for_lanes([&] { op_attention(cx_, op.layer, op.as<model::AttentionOp>()); });
      return true;
    case OpKind::kActivate:
      op_activate(cx_, op);
      return true;
    case OpKind::kGate:
      op_gate(cx_, op);
      return true;
    case OpKind::kMoe:
      return op_moe(op);
    case OpKind::kConv:
      cx_.for_lanes([&] { op_convolve(cx_, op); });
      return true;
    case OpKind::kSelect:
      op_select(cx_);
      return true;
    case OpKind::kPool:
      op_pool(cx_, op);
      return true;
    case OpKind::kAdd:
    case OpKind::kSoftCap:
    case OpKind::kScale:
    case OpKind::kClamp:
      op_elementwise(cx_, op);
      return true;
    case OpKind::kUnary:
      op_unary(cx_, op);
      return true;
    case OpKind::kGated:
      op_gated(cx_, op);
      return true;
    case OpKind::kDecay:
      op_decay(cx_, op);
      return true;
    case OpKind::kShift:
      cx_.for_lanes([&] { op_shift(cx_, op); });
      return true;
    case OpKind::kLerp:
      op_lerp(cx_, op);
      return true;
    case OpKind::kState:
      cx_.for_lanes([&] { op_state(cx_, op); });
      return true;
    case OpKind::kScan:
      cx_.for_lanes([&] { op_scan(cx_, op); });
      return true;
    case OpKind::kRwkv7Keys:
      op_rwkv7_keys(cx_, op);
      return true;
    case OpKind::kRwkv7Mix:
      op_rwkv7_mix(cx_, op);
      return true;
    case OpKind::kRwkv7Bonus:
      op_rwkv7_bonus(cx_, op);
      return true;
    case OpKind::kRows:
      return op_rows(op);
    case OpKind::kHeadMatmul:
      return op_head_matmul(op);
    case OpKind::kTemperature:
      cx_.for_lanes([&] { op_temperature(cx_, op); });
      return true;
    case OpKind::kCopy:
    case OpKind::kMulVec:
    case OpKind::kMixStreams:
    case OpKind::kCorrectStreams:
    case OpKind::kMatchNorm:
    case OpKind::kSparsify:
      op_vectors(cx_, op);
      return true;
    case OpKind::kStore:
      store_kv(cx_, op.layer, op.as<model::StoreOp>().att);
      return true;
    case OpKind::kCross:
      op_cross(cx_, op.as<model::CrossOp>());
      return true;
    case OpKind::kFill:
      cx_.for_lanes([&] { fill_cache(cx_, op.layer, op.as<model::FillOp>().attention); });
      return true;
    case OpKind::kApproximate:
      return op_approximate(op);
    case OpKind::kCount:
      break;
  }
  return true;
}

bool CpuExecutor::op_embed(const Op& op) {
  const model::Program& p = cx_.program;
  if (!cursor_.started) {
    for (const model::Rope& rope : p.ropes) {
      for (const int32_t v : {rope.factors_short, rope.factors_long}) {
        if (v >= 0 && cx_.vec(v) == nullptr && !feed_.need_vec(v)) return false;
      }
    }
    if (cx_.spec.queue == nullptr && !row_feed_.begin(cx_.tokens)) return false;
    fill_rope_tables(cx_);
    if (cx_.spec.queue != nullptr) return true;  // the executor reads the rows
    cursor_.started = true;
  }
  if (!row_feed_.ready(0)) return false;
  const auto& own = op.as<model::EmbedOp>();
  const float* positions = own.positions >= 0 ? cx_.vec(own.positions) : nullptr;
  const float* type = own.types >= 0 ? cx_.vec(own.types) : nullptr;
  for (const Lane& lane : cx_.lanes) {
    if (lane.part.sequence != nullptr) continue;
    const int64_t ld = cx_.width(op.out);
    std::fill_n(cx_.buffer(op.out) + lane.row * ld, lane.rows * ld, 0.0f);
  }
  cx_.for_lanes([&] {
    const int64_t ld = cx_.width(op.out);
    for (int32_t t = 0; t < cx_.rows; ++t) {
      row_feed_.read(0, cx_.token + t, 0, op.n, cx_.buffer(op.out) + t * ld);
    }
    if (own.mode >= 0) complete_rows(op);
    for (int32_t t = 0; t < cx_.rows; ++t) {
      float* x = cx_.buffer(op.out) + t * ld;
      if (cx_.spec.media.rows != nullptr) {
        std::copy_n(cx_.spec.media.rows + t * cx_.spec.media.width, op.n, x);
        if (!own.scales_media) continue;
      }
      if (own.scale != 1) cx_.table.scale(x, own.scale, op.n, x);
      if (type != nullptr) cx_.table.add(x, type, op.n, x);
      if (positions != nullptr) {
        cx_.table.add(x, positions + int64_t{cx_.position_of(t)} * op.n, op.n, x);
      }
    }
  });
  lora_.add_rows(cx_.tokens, own.scale, cx_.buffer(op.out), cx_.width(op.out));
  return true;
}

// The embedding's rows of the current lane, by an approximate mode.
void CpuExecutor::complete_rows(const Op& op) {
  ApproximateRows rows;
  rows.tokens =
      std::span(cx_.tokens).subspan(static_cast<size_t>(cx_.token), static_cast<size_t>(cx_.rows));
  rows.out = cx_.buffer(op.out);
  rows.ld_out = cx_.width(op.out);
  static_cast<void>(cx_.mode(op.as<model::EmbedOp>().mode).run(op, rows));
}

bool CpuExecutor::op_matmul(const Op& op) {
  const auto& own = op.as<model::MatmulOp>();
  const float* x = cx_.buffer(op.in) + op.in_col;
  const int64_t ld = cx_.width(op.in);
  if (!cursor_.started) {
    bool q8 = false;
    for (const model::MatPart& part : own.parts()) q8 = q8 || wants_q8(cx_, part.mat);
    if constexpr (model::kNextn) {
      if (cx_.in_nextn()) demand_nextn(cx_, pc_, demand_);
    }
    if (q8) quantize(cx_, x, ld, op.n, cx_.rows, cx_.working.q8());
    cursor_.started = true;
  }
  products_.clear();
  for (const model::MatPart& part : own.parts()) {
    Product product;
    product.mat = part.mat;
    product.bias = part.bias;
    product.acts = {x, ld, cx_.working.q8(), cx_.rows};
    product.y = cx_.buffer(op.out) + part.out_col;
    product.ldy = cx_.width(op.out);
    product.scale = own.scale;
    if (part.factor >= 0) product.factor = *cx_.vec(part.factor);
    product.add = own.add;
    products_.push_back(product);
  }
  return run_products();
}

bool CpuExecutor::op_approximate(const Op& op) {
  const auto& own = op.as<model::ApproximateOp>();
  ApproximateRows rows;
  rows.at = pc_;
  rows.rows = cx_.rows;
  rows.in = cx_.buffer(op.in) + op.in_col;
  rows.ld_in = cx_.width(op.in);
  rows.out = cx_.buffer(op.out) + op.out_col;
  rows.ld_out = cx_.width(op.out);
  rows.begins = !cursor_.started;
  rows.logits = !cx_.spec.encode && !cx_.spec.embed;
  rows.weights = &feed_;
  cursor_.started = true;
  if (!settle(cx_.mode(own.mode).run(op, rows))) return false;
  if (rows.jumps) pc_ += static_cast<size_t>(own.jump - 1);  // next_op() adds 1
  return true;
}

// out = (add ? out : 0) + scale * the token's row of the table.
bool CpuExecutor::op_rows(const Op& op) {
  const auto& own = op.as<model::RowsOp>();
  const size_t table = static_cast<size_t>(own.table);
  if (!row_feed_.ready(table)) return false;
  float* values = reinterpret_cast<float*>(cx_.working.scratch(0));
  cx_.for_lanes([&] {
    for (int32_t t = 0; t < cx_.rows; ++t) {
      row_feed_.read(table, cx_.token + t, op.in_col, op.n, values);
      float* out = cx_.buffer(op.out) + t * cx_.width(op.out) + op.out_col;
      for (int32_t i = 0; i < op.n; ++i) out[i] = (own.add ? out[i] : 0) + own.scale * values[i];
    }
  });
  return true;
}

// One matrix multiplication per head, each with its own columns of in and out.
bool CpuExecutor::op_head_matmul(const Op& op) {
  const auto& own = op.as<model::HeadMatmulOp>();
  const std::vector<int32_t>& mats = cx_.program.by_head[static_cast<size_t>(own.by_head)];
  const float* x = cx_.buffer(op.in) + op.in_col;
  const int64_t ld = cx_.width(op.in);
  const size_t q8_stride = static_cast<size_t>(cx_.rows) * cx_.table.q8_bytes(op.n);
  const auto q8 = [&](int32_t h) {
    return cx_.working.q8() + (own.in_step == 0 ? 0 : static_cast<size_t>(h) * q8_stride);
  };
  if (!cursor_.started) {
    const int32_t inputs = !wants_q8(cx_, mats[0]) ? 0 : own.in_step == 0 ? 1 : own.heads;
    for (int32_t h = 0; h < inputs; ++h) {
      quantize(cx_, x + int64_t{h} * own.in_step, ld, op.n, cx_.rows, q8(h));
    }
    cursor_.started = true;
  }
  products_.clear();
  for (int32_t h = 0; h < own.heads; ++h) {
    Product product;
    product.mat = mats[static_cast<size_t>(h)];
    product.acts = {x + int64_t{h} * own.in_step, ld, q8(h), cx_.rows};
    product.y = cx_.buffer(op.out) + op.out_col + int64_t{h} * own.out_step;
    product.ldy = cx_.width(op.out);
    products_.push_back(product);
  }
  return run_products();
}

}  // namespace sluice::session

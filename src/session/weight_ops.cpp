// Operations that need weights and can block: they request what is missing, record their progress
// and go on there. Also the dispatch of all operations.
#include "session/weight_ops.h"

#include "session/attention.h"
#include "session/nextn.h"
#include "session/ops.h"

namespace sluice::session {

using model::Op;
using model::OpKind;

WeightBatch::WeightBatch(const ExecutionContext& context)
    : CpuBatch(context),
      stream(context),
      embeddings(context),
      lora(context.adapters, context.table, context.pool, context.working) {
  size_t most = 4;
  for (const std::vector<int32_t>& heads : context.program.by_head) {
    most = std::max(most, heads.size());
  }
  products.reserve(most);
  size_t experts = 0;
  for (const model::Moe& moe : context.program.moes) experts = std::max(experts, moe.up.size());
  uses.reserve(experts);
}

namespace {

[[nodiscard]] bool settle(WeightBatch& cx, WeightRun ran) {
  if (ran == WeightRun::kReadFailed) cx.read_failed = true;
  return ran == WeightRun::kDone;
}

bool vectors_ready(WeightBatch& cx, const Op& op) {
  for (const int32_t v : op.vecs()) {
    if (!cx.stream.need_vec(v)) return false;
  }
  if (const auto* mixture = op.get<model::MoeOp>()) {
    for (const int32_t v : cx.program.moes[static_cast<size_t>(mixture->moe)].vecs()) {
      if (!cx.stream.need_vec(v)) return false;
    }
  }
  if (const auto* product = op.get<model::MatmulOp>()) {
    for (const model::MatPart& part : product->parts()) {
      if (!cx.stream.need_vec(part.bias) || !cx.stream.need_vec(part.factor)) return false;
    }
  }
  return true;
}

// The embedding's rows of the current lane, by an approximate mode.
void complete_rows(WeightBatch& cx, const Op& op) {
  ApproximateRows rows;
  rows.tokens =
      std::span(cx.tokens).subspan(static_cast<size_t>(cx.token), static_cast<size_t>(cx.rows));
  rows.out = cx.buffer(op.out);
  rows.ld_out = cx.width(op.out);
  static_cast<void>(cx.mode(op.as<model::EmbedOp>().mode).run(op, rows));
}

bool op_embed(WeightBatch& cx, const Op& op) {
  const model::Program& p = cx.program;
  if (!cx.started) {
    for (const model::Rope& rope : p.ropes) {
      for (const int32_t v : {rope.factors_short, rope.factors_long}) {
        if (v >= 0 && cx.vec(v) == nullptr && !cx.stream.need_vec(v)) return false;
      }
    }
    if (cx.spec.queue == nullptr && !cx.embeddings.begin(cx.tokens)) return false;
    fill_rope_tables(cx);
    if (cx.spec.queue != nullptr) return true;  // the executor reads the rows
    cx.started = true;
  }
  if (!cx.embeddings.ready(0)) return false;
  const auto& own = op.as<model::EmbedOp>();
  const float* positions = own.positions >= 0 ? cx.vec(own.positions) : nullptr;
  const float* type = own.types >= 0 ? cx.vec(own.types) : nullptr;
  for (const Lane& lane : cx.lanes) {
    if (lane.part.sequence != nullptr) continue;
    const int64_t ld = cx.width(op.out);
    std::fill_n(cx.buffer(op.out) + lane.row * ld, lane.rows * ld, 0.0f);
  }
  cx.for_lanes([&] {
    const int64_t ld = cx.width(op.out);
    for (int32_t t = 0; t < cx.rows; ++t) {
      cx.embeddings.read(0, cx.token + t, 0, op.n, cx.buffer(op.out) + t * ld);
    }
    if (own.mode >= 0) complete_rows(cx, op);
    for (int32_t t = 0; t < cx.rows; ++t) {
      float* x = cx.buffer(op.out) + t * ld;
      if (cx.spec.media.rows != nullptr) {
        std::copy_n(cx.spec.media.rows + t * cx.spec.media.width, op.n, x);
        if (!own.scales_media) continue;
      }
      if (own.scale != 1) cx.table.scale(x, own.scale, op.n, x);
      if (type != nullptr) cx.table.add(x, type, op.n, x);
      if (positions != nullptr) {
        cx.table.add(x, positions + int64_t{cx.position_of(t)} * op.n, op.n, x);
      }
    }
  });
  cx.lora.add_rows(cx.tokens, own.scale, cx.buffer(op.out), cx.width(op.out));
  return true;
}

// The matrices of pictures are outside of the streaming order: requests those of this operation,
// and of some behind it.
void demand_media(WeightBatch& cx) {
  constexpr size_t kAhead = 64;  // units
  residency::Residency& r = cx.weights.residency();
  if (r.plan().streamed_bytes == 0 && r.pins_pending() == 0) return;
  cx.demand.clear();
  for (size_t i = cx.at; i < cx.program.ops.size() && cx.demand.size() < kAhead; ++i) {
    const auto* product = cx.program.ops[i].get<model::MatmulOp>();
    if (product == nullptr) continue;
    for (const model::MatPart& part : product->parts()) {
      const int32_t media = cx.program.mats[static_cast<size_t>(part.mat)].media;
      if (media < 0) continue;
      const int32_t item = cx.weights.item_of_mat(media);
      for (uint32_t unit = r.plan().first_unit_of(item); unit < r.plan().end_unit_of(item);
           ++unit) {
        if (!r.plan().units[unit].pinned || !r.ready(unit)) cx.demand.push_back(unit);
      }
    }
  }
  r.set_demand(cx.demand);
}

bool op_matmul(WeightBatch& cx, const Op& op) {
  const auto& own = op.as<model::MatmulOp>();
  const float* x = cx.buffer(op.in) + op.in_col;
  const int64_t ld = cx.width(op.in);
  if (!cx.started) {
    bool q8 = false;
    for (const model::MatPart& part : own.parts()) q8 = q8 || wants_q8(cx, cx.mat_of(part.mat));
    if (cx.mat_of(own.all[0].mat) != own.all[0].mat) demand_media(cx);
    if constexpr (model::kNextn) {
      if (cx.in_nextn()) demand_nextn(cx, cx.at, cx.demand);
    }
    if (q8) quantize(cx, x, ld, op.n, cx.rows, cx.working.q8());
    cx.started = true;
  }
  cx.products.clear();
  for (const model::MatPart& part : own.parts()) {
    Product product;
    product.mat = cx.mat_of(part.mat);
    product.bias = part.bias;
    product.acts = {x, ld, cx.working.q8(), cx.rows};
    product.y = cx.buffer(op.out) + part.out_col;
    product.ldy = cx.width(op.out);
    product.scale = own.scale;
    if (part.factor >= 0) product.factor = *cx.vec(part.factor);
    product.add = own.add;
    cx.products.push_back(product);
  }
  return run_products(cx);
}

bool op_approximate(WeightBatch& cx, const Op& op) {
  const auto& own = op.as<model::ApproximateOp>();
  ApproximateRows rows;
  rows.at = cx.at;
  rows.rows = cx.rows;
  rows.in = cx.buffer(op.in) + op.in_col;
  rows.ld_in = cx.width(op.in);
  rows.out = cx.buffer(op.out) + op.out_col;
  rows.ld_out = cx.width(op.out);
  rows.begins = !cx.started;
  rows.logits = !cx.spec.encode && !cx.spec.embed;
  rows.weights = &cx.stream;
  cx.started = true;
  if (!settle(cx, cx.mode(own.mode).run(op, rows))) return false;
  if (rows.jumps) cx.at += static_cast<size_t>(own.jump - 1);  // next_op() adds 1
  return true;
}

// out = (add ? out : 0) + scale * the token's row of the table.
bool op_rows(WeightBatch& cx, const Op& op) {
  const auto& own = op.as<model::RowsOp>();
  const size_t table = static_cast<size_t>(own.table);
  if (!cx.embeddings.ready(table)) return false;
  float* values = reinterpret_cast<float*>(cx.working.scratch(0));
  cx.for_lanes([&] {
    for (int32_t t = 0; t < cx.rows; ++t) {
      cx.embeddings.read(table, cx.token + t, op.in_col, op.n, values);
      float* out = cx.buffer(op.out) + t * cx.width(op.out) + op.out_col;
      for (int32_t i = 0; i < op.n; ++i) out[i] = (own.add ? out[i] : 0) + own.scale * values[i];
    }
  });
  return true;
}

// One matrix multiplication per head, each with its own columns of in and out.
bool op_head_matmul(WeightBatch& cx, const Op& op) {
  const auto& own = op.as<model::HeadMatmulOp>();
  const std::vector<int32_t>& mats = cx.program.by_head[static_cast<size_t>(own.by_head)];
  const float* x = cx.buffer(op.in) + op.in_col;
  const int64_t ld = cx.width(op.in);
  const size_t q8_stride = static_cast<size_t>(cx.rows) * cx.table.q8_bytes(op.n);
  const auto q8 = [&](int32_t h) {
    return cx.working.q8() + (own.in_step == 0 ? 0 : static_cast<size_t>(h) * q8_stride);
  };
  if (!cx.started) {
    const int32_t inputs = !wants_q8(cx, mats[0]) ? 0 : own.in_step == 0 ? 1 : own.heads;
    for (int32_t h = 0; h < inputs; ++h) {
      quantize(cx, x + int64_t{h} * own.in_step, ld, op.n, cx.rows, q8(h));
    }
    cx.started = true;
  }
  cx.products.clear();
  for (int32_t h = 0; h < own.heads; ++h) {
    Product product;
    product.mat = mats[static_cast<size_t>(h)];
    product.acts = {x + int64_t{h} * own.in_step, ld, q8(h), cx.rows};
    product.y = cx.buffer(op.out) + op.out_col + int64_t{h} * own.out_step;
    product.ldy = cx.width(op.out);
    cx.products.push_back(product);
  }
  return run_products(cx);
}

// Operations that need no weights but small tensors.
void run_row_op(CpuBatch& cx, const Op& op) {
  switch (op.kind()) {
    case OpKind::kNorm:
      return op_norm(cx, op);
    case OpKind::kRope:
      return cx.for_lanes([&] { op_rope(cx, op); });
    case OpKind::kAttention:
      return cx.for_lanes([&] { op_attention(cx, op.layer, op.as<model::AttentionOp>()); });
    case OpKind::kActivate:
      return op_activate(cx, op);
    case OpKind::kGate:
      return op_gate(cx, op);
    case OpKind::kConv:
      return cx.for_lanes([&] { op_convolve(cx, op); });
    case OpKind::kSelect:
      return op_select(cx);
    case OpKind::kPool:
      return op_pool(cx, op);
    case OpKind::kAdd:
    case OpKind::kSoftCap:
    case OpKind::kScale:
    case OpKind::kClamp:
      return op_elementwise(cx, op);
    case OpKind::kUnary:
      return op_unary(cx, op);
    case OpKind::kGated:
      return op_gated(cx, op);
    case OpKind::kDecay:
      return op_decay(cx, op);
    case OpKind::kShift:
      return cx.for_lanes([&] { op_shift(cx, op); });
    case OpKind::kLerp:
      return op_lerp(cx, op);
    case OpKind::kState:
      return cx.for_lanes([&] { op_state(cx, op); });
    case OpKind::kScan:
      return cx.for_lanes([&] { op_scan(cx, op); });
    case OpKind::kRwkv7Keys:
      return op_rwkv7_keys(cx, op);
    case OpKind::kRwkv7Mix:
      return op_rwkv7_mix(cx, op);
    case OpKind::kRwkv7Bonus:
      return op_rwkv7_bonus(cx, op);
    case OpKind::kTemperature:
      return cx.for_lanes([&] { op_temperature(cx, op); });
    case OpKind::kCopy:
    case OpKind::kMulVec:
    case OpKind::kMixStreams:
    case OpKind::kCorrectStreams:
    case OpKind::kMatchNorm:
    case OpKind::kSparsify:
      return op_vectors(cx, op);
    case OpKind::kStore:
      return store_kv(cx, op.layer, op.as<model::StoreOp>().att);
    case OpKind::kCross:
      return op_cross(cx, op.as<model::CrossOp>());
    case OpKind::kFill:
      return cx.for_lanes([&] { fill_cache(cx, op.layer, op.as<model::FillOp>().attention); });
    case OpKind::kEmbed:
    case OpKind::kMatmul:
    case OpKind::kMoe:
    case OpKind::kRows:
    case OpKind::kHeadMatmul:
    case OpKind::kApproximate:
    case OpKind::kCount:
      return;
  }
}

}  // namespace

bool run_op(WeightBatch& cx, const Op& op) {
  if (!cx.started && !vectors_ready(cx, op)) return false;
  switch (op.kind()) {
    case OpKind::kEmbed:
      return op_embed(cx, op);
    case OpKind::kMatmul:
      return op_matmul(cx, op);
    case OpKind::kMoe:
      return op_moe(cx, op);
    case OpKind::kRows:
      return op_rows(cx, op);
    case OpKind::kHeadMatmul:
      return op_head_matmul(cx, op);
    case OpKind::kApproximate:
      return op_approximate(cx, op);
    default:
      run_row_op(cx, op);
      return true;
  }
}

bool run_products(WeightBatch& cx) {
  if (!settle(cx, cx.stream.run(cx.products))) return false;
  for (const Product& product : cx.products) {
    cx.lora.add(product);
    if (cx.watch.see == nullptr) continue;
    const kernels::Acts& x = product.acts;
    cx.watch.see(cx.watch.context, cx.program.mats[static_cast<size_t>(product.mat)], x.f32, x.ld,
                 x.n_tokens);
  }
  return true;
}

}  // namespace sluice::session

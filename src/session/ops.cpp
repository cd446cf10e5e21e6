// The operations of a forward pass, one function each, over the rows of the batch. Small ones run
// on the calling thread; matrix multiplications and attention use the thread pool.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "session/cpu_executor.h"
#include "session/rope.h"

namespace sluice::session {

using model::Buf;
using model::Op;
using model::OpKind;

bool CpuExecutor::vectors_ready(const Op& op) {
  for (const int32_t v : op.vecs()) {
    if (!feed_.need_vec(v)) return false;
  }
  if (const auto* mixture = op.get<model::MoeOp>()) {
    for (const int32_t v : engine_.program().moes[static_cast<size_t>(mixture->moe)].vecs()) {
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
      op_norm(op);
      return true;
    case OpKind::kMatmul:
      return op_matmul(op);
    case OpKind::kRope:
      for_lanes([&] { op_rope(op); });
      return true;
    case OpKind::kAttention:
      for_lanes([&] { op_attention(op.layer, op.as<model::AttentionOp>()); });
      return true;
    case OpKind::kActivate:
      op_activate(op);
      return true;
    case OpKind::kGate:
      op_gate(op);
      return true;
    case OpKind::kMoe:
      return op_moe(op);
    case OpKind::kConv:
      for_lanes([&] { op_convolve(op); });
      return true;
    case OpKind::kSelect:
      op_select();
      return true;
    case OpKind::kPool:
      op_pool(op);
      return true;
    case OpKind::kAdd:
    case OpKind::kSoftCap:
    case OpKind::kScale:
    case OpKind::kClamp:
      op_elementwise(op);
      return true;
    case OpKind::kUnary:
      op_unary(op);
      return true;
    case OpKind::kGated:
      op_gated(op);
      return true;
    case OpKind::kDecay:
      op_decay(op);
      return true;
    case OpKind::kShift:
      for_lanes([&] { op_shift(op); });
      return true;
    case OpKind::kLerp:
      op_lerp(op);
      return true;
    case OpKind::kState:
      for_lanes([&] { op_state(op); });
      return true;
    case OpKind::kScan:
      for_lanes([&] { op_scan(op); });
      return true;
    case OpKind::kRwkv7Keys:
      op_rwkv7_keys(op);
      return true;
    case OpKind::kRwkv7Mix:
      op_rwkv7_mix(op);
      return true;
    case OpKind::kRwkv7Bonus:
      op_rwkv7_bonus(op);
      return true;
    case OpKind::kRows:
      return op_rows(op);
    case OpKind::kHeadMatmul:
      return op_head_matmul(op);
    case OpKind::kTemperature:
      for_lanes([&] { op_temperature(op); });
      return true;
    case OpKind::kCopy:
    case OpKind::kMulVec:
    case OpKind::kMixStreams:
    case OpKind::kCorrectStreams:
    case OpKind::kMatchNorm:
    case OpKind::kSparsify:
      op_vectors(op);
      return true;
    case OpKind::kStore:
      store_kv(op.layer, op.as<model::StoreOp>().att);
      return true;
    case OpKind::kCross:
      op_cross(op.as<model::CrossOp>());
      return true;
    case OpKind::kFill:
      for_lanes([&] { fill_cache(op.layer, op.as<model::FillOp>().attention); });
      return true;
    case OpKind::kApproximate:
      return op_approximate(op);
    case OpKind::kCount:
      break;
  }
  return true;
}

const float* CpuExecutor::rope_factors(size_t rope) const {
  const model::Rope& r = engine_.program().ropes[rope];
  const bool is_long = r.is_long(engine_.plan().kv.layout.positions);
  const int32_t factors = is_long ? r.factors_long : r.factors_short;
  return factors >= 0 ? engine_.vec(factors) : nullptr;
}

void CpuExecutor::fill_rope_tables() {
  const model::Program& p = engine_.program();
  const KvPlan& room = engine_.plan().kv.layout;
  for (size_t i = 0; i < p.ropes.size(); ++i) {
    const model::Rope& r = p.ropes[i];
    const float* by = rope_factors(i);
    float* table = engine_.working().rope_table(i);
    if (spec_.ends.empty()) {
      for_lanes([&] {
        float* own = table + int64_t{token_} * r.hp.n_rot;
        if (const MediaBatch& media = spec_.media; media.columns > 0) {
          fill_rope_table(r.hp, by, RopeGrid{media.time, media.cell, media.columns}, rows_, own);
        } else {
          fill_rope_table(r.hp, by, sequence_->rope_position(first_), rows_, own);
        }
        float* back = engine_.working().turn_table(i) + int64_t{token_} * r.hp.n_rot;
        if (room.slots > 0) {  // the same for all rows of a batch
          fill_rope_table(r.hp, by, room.eviction.gone(first_) - 1, 1, back, /*back=*/true);
          for (int32_t t = 1; t < rows_; ++t) std::copy_n(back, r.hp.n_rot, back + t * r.hp.n_rot);
          return;
        }
        const int32_t turned = first_ + 1 - room.sinks - room.window;  // of the first row
        if (room.sinks > 0 && turned + rows_ > 0) {
          fill_rope_table(r.hp, by, turned, rows_, back, /*back=*/true);
        }
      });
      continue;
    }
    // Inputs all begin at position 0: rows that an earlier input has computed are copied.
    const float* known = table;
    int32_t n_known = 0;
    for_texts([&](int32_t row, int32_t n) {
      float* own = table + int64_t{row} * r.hp.n_rot;
      const int32_t same = std::min(n, n_known);
      std::copy_n(known, int64_t{same} * r.hp.n_rot, own);
      fill_rope_table(r.hp, by, same, n - same, own + int64_t{same} * r.hp.n_rot);
      if (n <= n_known) return;
      known = own;
      n_known = n;
    });
  }
}

bool CpuExecutor::op_embed(const Op& op) {
  const model::Program& p = engine_.program();
  if (!cursor_.started) {
    for (const model::Rope& rope : p.ropes) {
      for (const int32_t v : {rope.factors_short, rope.factors_long}) {
        if (v >= 0 && engine_.vec(v) == nullptr && !feed_.need_vec(v)) return false;
      }
    }
    if (!row_feed_.begin(tokens_)) return false;
    fill_rope_tables();
    cursor_.started = true;
  }
  if (!row_feed_.ready(0)) return false;
  const auto& own = op.as<model::EmbedOp>();
  const float* positions = own.positions >= 0 ? engine_.vec(own.positions) : nullptr;
  const float* type = own.types >= 0 ? engine_.vec(own.types) : nullptr;
  for (const Lane& lane : lanes_) {
    if (lane.part.sequence != nullptr) continue;
    const int64_t ld = engine_.width(op.out);
    std::fill_n(buffer(op.out) + lane.row * ld, lane.rows * ld, 0.0f);
  }
  for_lanes([&] {
    const int64_t ld = engine_.width(op.out);
    for (int32_t t = 0; t < rows_; ++t) {
      row_feed_.read(0, token_ + t, 0, op.n, buffer(op.out) + t * ld);
    }
    if (own.mode >= 0) complete_rows(op);
    for (int32_t t = 0; t < rows_; ++t) {
      float* x = buffer(op.out) + t * ld;
      if (spec_.media.rows != nullptr) {
        std::copy_n(spec_.media.rows + t * spec_.media.width, op.n, x);
        if (!own.scales_media) continue;
      }
      if (own.scale != 1) engine_.table().scale(x, own.scale, op.n, x);
      if (type != nullptr) engine_.table().add(x, type, op.n, x);
      if (positions != nullptr) {
        engine_.table().add(x, positions + int64_t{position_of(t)} * op.n, op.n, x);
      }
    }
  });
  add_low_rank_rows(op.out, own.scale);
  return true;
}

// The embedding's rows of the current lane, by an approximate mode.
void CpuExecutor::complete_rows(const Op& op) {
  ApproximateRows rows;
  rows.tokens = std::span(tokens_).subspan(static_cast<size_t>(token_), static_cast<size_t>(rows_));
  rows.out = buffer(op.out);
  rows.ld_out = engine_.width(op.out);
  static_cast<void>(engine_.mode(op.as<model::EmbedOp>().mode).run(op, rows));
}

void CpuExecutor::op_norm(const Op& op) {
  const kernels::Table& k = engine_.table();
  const auto& norm = op.as<model::NormOp>();
  const float eps = norm.eps != 0 ? norm.eps : engine_.program().hp.norm.eps;
  const float* weight = norm.weight >= 0 ? engine_.vec(norm.weight) : nullptr;
  const float* bias = norm.bias >= 0 ? engine_.vec(norm.bias) : nullptr;
  for_rows(rows_, [&](int32_t t) {
    const float* in = buffer(op.in) + t * engine_.width(op.in) + op.in_col;
    float* out = buffer(op.out) + t * engine_.width(op.out) + op.out_col;
    for (int32_t h = 0; h < norm.heads; ++h) {
      const int64_t own = norm.per_head ? int64_t{h} * op.n : 0;
      const float* w = weight == nullptr ? nullptr : weight + own;
      const float* b = bias == nullptr ? nullptr : bias + own;
      const float* x = in + int64_t{h} * op.n;
      float* y = out + int64_t{h} * op.n;
      switch (norm.kind) {
        case model::NormKind::kRms:
          k.rms_norm(x, w, eps, op.n, y);
          if (b != nullptr) k.add(y, b, op.n, y);
          break;
        case model::NormKind::kLayer:
          k.layer_norm(x, w, b, eps, op.n, y);
          break;
        case model::NormKind::kL2:
          k.l2_norm(x, norm.scale, eps, op.n, y);
          break;
      }
    }
  });
}

bool CpuExecutor::wants_q8(int32_t mat) const {
  const model::Mat& m = engine_.program().mats[static_cast<size_t>(mat)];
  return engine_.table().act_format(m.type) == kernels::ActFormat::kQ8;
}

void CpuExecutor::quantize(const float* x, int64_t ld, int64_t cols, int32_t n_tokens,
                           uint8_t* out) {
#if defined(__wasm__)
  constexpr int32_t kTile = kernels::kActTile;
#else
  constexpr int32_t kTile = 1;  // only wasm kernels mix tokens
#endif
  constexpr int64_t kValuesForThreads = 4096;  // with fewer, starting a thread costs more
  const size_t stride = engine_.table().q8_bytes(cols);
  const int32_t n_tiles = (n_tokens + kTile - 1) / kTile;
  const auto quantize_tile = [&](int32_t tile) {
    const int32_t t = tile * kTile;
    engine_.table().quantize_q8(x + t * ld, ld, cols, std::min(kTile, n_tokens - t),
                                out + static_cast<size_t>(t) * stride);
  };
  if (n_tokens * cols < kValuesForThreads) {
    for (int32_t tile = 0; tile < n_tiles; ++tile) quantize_tile(tile);
    return;
  }
  engine_.pool().parallel_for(
      n_tiles, [&](int64_t tile, int) { quantize_tile(static_cast<int32_t>(tile)); });
}

bool CpuExecutor::op_matmul(const Op& op) {
  const auto& own = op.as<model::MatmulOp>();
  const float* x = buffer(op.in) + op.in_col;
  const int64_t ld = engine_.width(op.in);
  if (!cursor_.started) {
    bool q8 = false;
    for (const model::MatPart& part : own.parts()) q8 = q8 || wants_q8(part.mat);
    if constexpr (model::kNextn) {
      if (in_nextn()) demand_nextn();
    }
    if (q8) quantize(x, ld, op.n, rows_, engine_.working().q8());
    cursor_.started = true;
  }
  products_.clear();
  for (const model::MatPart& part : own.parts()) {
    Product product;
    product.mat = part.mat;
    product.bias = part.bias;
    product.acts = {x, ld, engine_.working().q8(), rows_};
    product.y = buffer(op.out) + part.out_col;
    product.ldy = engine_.width(op.out);
    product.scale = own.scale;
    if (part.factor >= 0) product.factor = *engine_.vec(part.factor);
    product.add = own.add;
    products_.push_back(product);
  }
  return run_products();
}

bool CpuExecutor::op_approximate(const Op& op) {
  const auto& own = op.as<model::ApproximateOp>();
  ApproximateRows rows;
  rows.at = pc_;
  rows.rows = rows_;
  rows.in = buffer(op.in) + op.in_col;
  rows.ld_in = engine_.width(op.in);
  rows.out = buffer(op.out) + op.out_col;
  rows.ld_out = engine_.width(op.out);
  rows.begins = !cursor_.started;
  rows.logits = !spec_.encode && !spec_.embed;
  rows.weights = &feed_;
  cursor_.started = true;
  if (!settle(engine_.mode(own.mode).run(op, rows))) return false;
  if (rows.jumps) pc_ += static_cast<size_t>(own.jump - 1);  // next_op() adds 1
  return true;
}

void CpuExecutor::op_rope(const Op& op) {
  const auto& own = op.as<model::RopeOp>();
  const model::RopeHParams& rope = engine_.program().ropes[static_cast<size_t>(own.rope)].hp;
  const float* table = engine_.working().rope_table(static_cast<size_t>(own.rope));
  const int32_t half = rope.n_rot / 2;
  const model::AttentionShape& att = own.att;
  const int32_t heads = att.heads + (att.owned_by(op.layer) ? att.kv_heads : 0);
  for_rows(rows_, [&](int32_t t) {
    const float* cos = table + static_cast<int64_t>(token_ + t) * rope.n_rot;
    float* head = buffer(op.in) + t * engine_.width(op.in) + op.in_col;
    for (int32_t h = 0; h < heads; ++h, head += att.dk) {
      engine_.table().rope(head, cos, cos + half, rope.n_rot, rope.neox);
    }
  });
}

void CpuExecutor::activate(model::Activation act, float* gate, int64_t n,
                           const kernels::Xielu* xielu) {
  constexpr float kAlpha = 1.702f, kLimit = 7.0f;
  const kernels::Table& k = engine_.table();
  float* up = gate + n;
  switch (act) {
    case model::Activation::kSiluMul:
      k.silu_mul(gate, up, n, gate);
      break;
    case model::Activation::kGeluMul:
      k.gelu_mul(gate, up, n, gate);
      break;
    case model::Activation::kGeluTanh:
      k.gelu_tanh(gate, n, gate);
      break;
    case model::Activation::kReluMul:
      for (int64_t i = 0; i < n; ++i) gate[i] = std::max(gate[i], 0.0f) * up[i];
      break;
    case model::Activation::kRelu:
      for (int64_t i = 0; i < n; ++i) gate[i] = std::max(gate[i], 0.0f);
      break;
    case model::Activation::kReluSquared:
      for (int64_t i = 0; i < n; ++i) gate[i] = std::max(gate[i], 0.0f) * std::max(gate[i], 0.0f);
      break;
    case model::Activation::kReluSquaredMul:
      for (int64_t i = 0; i < n; ++i) {
        const float positive = std::max(gate[i], 0.0f);
        gate[i] = positive * positive * up[i];
      }
      break;
    case model::Activation::kXielu:
      k.xielu(gate, *xielu, n, gate);
      break;
    case model::Activation::kClampedSwiglu:  // g sigmoid(a g) (u + 1) = silu(a g) (u + 1) / a
      for (int64_t i = 0; i < n; ++i) {
        gate[i] = kAlpha * std::min(gate[i], kLimit);
        up[i] = (std::clamp(up[i], -kLimit, kLimit) + 1) / kAlpha;
      }
      k.silu_mul(gate, up, n, gate);
      break;
    case model::Activation::kGeluErf:
      k.gelu_erf(gate, n, gate);
      break;
    case model::Activation::kTanh:
      k.soft_cap(gate, 1, n, gate);
      break;
  }
}

void CpuExecutor::op_activate(const Op& op) {
  const auto& own = op.as<model::ActivateOp>();
  for_rows(rows_, [&](int32_t t) {
    activate(own.act, buffer(op.in) + t * engine_.width(op.in) + op.in_col, op.n, &own.xielu);
  });
}

void CpuExecutor::op_gate(const Op& op) {
  const int32_t heads = op.as<model::GateOp>().heads, run = op.n / heads;
  for_rows(rows_, [&](int32_t t) {
    const float* in = buffer(op.in) + t * engine_.width(op.in) + op.in_col;
    float* out = buffer(op.out) + t * engine_.width(op.out) + op.out_col;
    for (int32_t g = 0; g < heads; ++g, out += run) {
      const float by = static_cast<float>(1 / (1 + std::exp(-static_cast<double>(in[g]))));
      std::for_each(out, out + run, [by](float& x) { x *= by; });
    }
  });
}

void CpuExecutor::op_elementwise(const Op& op) {
  const kernels::Table& k = engine_.table();
  for_rows(rows_, [&](int32_t t) {
    const float* in = buffer(op.in) + t * engine_.width(op.in) + op.in_col;
    float* out = buffer(op.out) + t * engine_.width(op.out) + op.out_col;
    if (const auto* soft = op.get<model::SoftCapOp>()) {
      k.soft_cap(in, soft->cap, op.n, out);
    } else if (const auto* clamp = op.get<model::ClampOp>()) {
      for (int32_t i = 0; i < op.n; ++i) out[i] = std::clamp(in[i], -clamp->limit, clamp->limit);
    } else if (const auto* scale = op.get<model::ScaleOp>()) {
      if (scale->scale == 0) {
        std::fill_n(out, op.n, 0.0f);  // overwrites whatever was there
      } else {
        k.scale(in, scale->scale, op.n, out);
      }
    } else if (const float by = op.as<model::AddOp>().scale; by == 1) {
      k.add(out, in, op.n, out);
    } else {
      for (int32_t i = 0; i < op.n; ++i) out[i] += by * in[i];
    }
  });
}

// Moves rows whose logits are wanted to the front.
void CpuExecutor::op_select() {
  if (spec_.embed || in_part()) return;
  if constexpr (model::kNextn) note_states();
  float* x = buffer(Buf::kX);
  const int64_t width = engine_.width(Buf::kX);
  int32_t kept = spec_.logits_at;  // logits of all batches of a pass are contiguous
  for (Lane& lane : lanes_) {
    const int32_t from = lane.row + lane.part.first_row;
    lane.first += lane.part.first_row;
    lane.token += lane.part.first_row;
    lane.row = kept;
    lane.rows = lane.part.n_rows;
    std::memmove(x + kept * width, x + from * width,
                 static_cast<size_t>(lane.rows * width) * sizeof(float));
    kept += lane.rows;
  }
  enter(lanes_[0]);
  rows_ = kept - spec_.logits_at;
}

// Pools the rows of each input into one, or keeps them all. If an input takes several batches, sums
// of earlier batches are kept until this one is done, because it may have to be recomputed. Sums
// are accumulated token by token in double, the same in one batch and in several.
void CpuExecutor::op_pool(const Op& op) {
  const size_t n = static_cast<size_t>(op.n);
  if (spec_.pooling == model::Pooling::kNone) {
    for (int32_t t = 0; t < rows_; ++t) {
      std::copy_n(buffer(op.in) + t * engine_.width(op.in), n,
                  buffer(op.out) + t * engine_.width(op.out));
    }
    return;
  }
  double* kept = engine_.working().pool_sums();
  double* sums = kept + n;
  const bool ranks = spec_.pooling == model::Pooling::kRank;
  const model::Pooling how = ranks ? engine_.program().rank_pooling : spec_.pooling;
  int32_t n_texts = 0;
  const auto pool = [&](int32_t first, int32_t tokens) {
    const auto add_row = [&](int32_t t) {
      const float* x = buffer(op.in) + t * engine_.width(op.in);
      for (size_t i = 0; i < n; ++i) sums[i] += static_cast<double>(x[i]);
    };
    if (spec_.begins) {
      std::fill_n(sums, n, 0.0);
    } else {
      std::copy_n(kept, n, sums);
    }
    if (how == model::Pooling::kMean) {
      for (int32_t t = first; t < first + tokens; ++t) add_row(t);
    } else if (how == model::Pooling::kLast) {
      if (spec_.completes) add_row(first + tokens - 1);
    } else if (spec_.begins) {
      add_row(first);
    }
    if (!spec_.completes) {
      std::copy_n(sums, n, kept);
      return;
    }
    const bool mean = how == model::Pooling::kMean;
    const double by = mean ? 1.0 / (spec_.ends.empty() ? first_ + tokens : tokens) : 1.0;
    float* out = buffer(op.out) + n_texts++ * engine_.width(op.out);
    for (size_t i = 0; i < n; ++i) out[i] = static_cast<float>(sums[i] * by);
  };
  if (spec_.ends.empty()) {
    pool(0, rows_);
  } else {
    for_texts(pool);
  }
  rows_ = n_texts;
}

}  // namespace sluice::session

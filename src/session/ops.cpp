// Operations that most models have, and what they share.
#include "session/ops.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "session/nextn.h"
#include "session/rope.h"

namespace sluice::session {

using model::Buf;
using model::Op;

const float* rope_factors(CpuBatch& cx, size_t rope) {
  const model::Rope& r = cx.program.ropes[rope];
  const bool is_long = r.is_long(cx.plan.kv.layout.positions);
  const int32_t factors = is_long ? r.factors_long : r.factors_short;
  return factors >= 0 ? cx.vec(factors) : nullptr;
}

void fill_rope_rows(CpuBatch& cx, size_t rope, int32_t first, int32_t n, float* out, bool back) {
  const model::RopeHParams& hp = cx.program.ropes[rope].hp;
  const float* by = rope_factors(cx, rope);
  for (int32_t done = 0; done < n;) {
    const Sequence::RopeRun run = cx.sequence->rope_run(first + done);
    const int32_t count = std::min(n - done, run.end - (first + done));
    float* rows = out + int64_t{done} * hp.n_rot;
    if (run.columns > 0) {
      fill_rope_table(hp, by, RopeGrid{run.position, run.cell, run.columns}, count, rows, back);
    } else {
      fill_rope_table(hp, by, run.position, count, rows, back);
    }
    done += count;
  }
}

namespace {

// The rows that rotate queries back by the RoPE positions between what is kept and what they see of
// the ring. Those of a picture count as soon as all of it is evicted.
void fill_turn_rows(CpuBatch& cx, size_t rope, float* out) {
  const model::RopeHParams& hp = cx.program.ropes[rope].hp;
  const float* by = rope_factors(cx, rope);
  const KvPlan& room = cx.plan.kv.layout;
  const bool heavy = room.slots > 0;
  if (!heavy && room.sinks == 0) return;
  // The position from which evicted ones are counted. Heavy hitters are all at the one before the
  // ring.
  const int32_t kept = heavy ? 1 : cx.sequence->rope_position(room.sinks);
  const int32_t first = heavy ? room.eviction.gone(cx.first) : cx.first + 1 - room.window;
  for (int32_t t = heavy ? 0 : std::max(0, room.sinks + 1 - first); t < cx.rows;) {
    const Sequence::RopeRun run = cx.sequence->rope_run(heavy ? first : first + t);
    const bool same = heavy || run.columns > 0;  // for all of these rows
    const int32_t count = heavy ? cx.rows : std::min(cx.rows - t, run.end - (first + t));
    float* rows = out + int64_t{t} * hp.n_rot;
    fill_rope_table(hp, by, run.position - kept, same ? 1 : count, rows, /*back=*/true);
    for (int32_t i = 1; same && i < count; ++i) std::copy_n(rows, hp.n_rot, rows + i * hp.n_rot);
    t += count;
  }
}

}  // namespace

void fill_rope_tables(CpuBatch& cx) {
  const model::Program& p = cx.program;
  const KvPlan& room = cx.plan.kv.layout;
  for (size_t i = 0; i < p.ropes.size(); ++i) {
    const model::Rope& r = p.ropes[i];
    const float* by = rope_factors(cx, i);
    float* table = cx.working.rope_table(i);
    if (cx.spec.ends.empty()) {
      cx.for_lanes([&] {
        const int64_t at = int64_t{cx.token} * r.hp.n_rot;
        fill_rope_rows(cx, i, cx.first, cx.rows, table + at);
        if (room.evicts()) fill_turn_rows(cx, i, cx.working.turn_table(i) + at);
      });
      continue;
    }
    // Inputs all begin at position 0: rows that an earlier input has computed are copied.
    const float* known = table;
    int32_t n_known = 0;
    cx.for_texts([&](int32_t row, int32_t n) {
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

void op_norm(CpuBatch& cx, const Op& op) {
  const kernels::Table& k = cx.table;
  const auto& norm = op.as<model::NormOp>();
  const float eps = norm.eps != 0 ? norm.eps : cx.program.hp.norm.eps;
  const float* weight = norm.weight >= 0 ? cx.vec(norm.weight) : nullptr;
  const float* bias = norm.bias >= 0 ? cx.vec(norm.bias) : nullptr;
  cx.for_rows(cx.rows, [&](int32_t t) {
    const float* in = cx.buffer(op.in) + t * cx.width(op.in) + op.in_col;
    float* out = cx.buffer(op.out) + t * cx.width(op.out) + op.out_col;
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

bool wants_q8(CpuBatch& cx, int32_t mat) {
  const model::Mat& m = cx.program.mats[static_cast<size_t>(mat)];
  return cx.table.act_format(m.type) == kernels::ActFormat::kQ8;
}

void quantize(CpuBatch& cx, const float* x, int64_t ld, int64_t cols, int32_t n_tokens,
              uint8_t* out) {
#if defined(__wasm__)
  constexpr int32_t kTile = kernels::kActTile;
#else
  constexpr int32_t kTile = 1;  // only wasm kernels mix tokens
#endif
  constexpr int64_t kValuesForThreads = 4096;  // with fewer, starting a thread costs more
  const size_t stride = cx.table.q8_bytes(cols);
  const int32_t n_tiles = (n_tokens + kTile - 1) / kTile;
  const auto quantize_tile = [&](int32_t tile) {
    const int32_t t = tile * kTile;
    cx.table.quantize_q8(x + t * ld, ld, cols, std::min(kTile, n_tokens - t),
                         out + static_cast<size_t>(t) * stride);
  };
  if (n_tokens * cols < kValuesForThreads) {
    for (int32_t tile = 0; tile < n_tiles; ++tile) quantize_tile(tile);
    return;
  }
  cx.pool.parallel_for(n_tiles,
                       [&](int64_t tile, int) { quantize_tile(static_cast<int32_t>(tile)); });
}

void op_rope(CpuBatch& cx, const Op& op) {
  const auto& own = op.as<model::RopeOp>();
  const model::RopeHParams& rope = cx.program.ropes[static_cast<size_t>(own.rope)].hp;
  const float* table = cx.working.rope_table(static_cast<size_t>(own.rope));
  const int32_t half = rope.n_rot / 2;
  const model::AttentionShape& att = own.att;
  const int32_t heads = att.heads + (att.owned_by(op.layer) ? att.kv_heads : 0);
  cx.for_rows(cx.rows, [&](int32_t t) {
    const float* cos = table + static_cast<int64_t>(cx.token + t) * rope.n_rot;
    float* head = cx.buffer(op.in) + t * cx.width(op.in) + op.in_col;
    for (int32_t h = 0; h < heads; ++h, head += att.dk) {
      cx.table.rope(head, cos, cos + half, rope.n_rot, rope.neox);
    }
  });
}

void activate(CpuBatch& cx, model::Activation act, float* gate, int64_t n,
              const kernels::Xielu* xielu) {
  constexpr float kAlpha = 1.702f, kLimit = 7.0f;
  const kernels::Table& k = cx.table;
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

void op_activate(CpuBatch& cx, const Op& op) {
  const auto& own = op.as<model::ActivateOp>();
  cx.for_rows(cx.rows, [&](int32_t t) {
    activate(cx, own.act, cx.buffer(op.in) + t * cx.width(op.in) + op.in_col, op.n, &own.xielu);
  });
}

void op_gate(CpuBatch& cx, const Op& op) {
  const int32_t heads = op.as<model::GateOp>().heads, run = op.n / heads;
  cx.for_rows(cx.rows, [&](int32_t t) {
    const float* in = cx.buffer(op.in) + t * cx.width(op.in) + op.in_col;
    float* out = cx.buffer(op.out) + t * cx.width(op.out) + op.out_col;
    for (int32_t g = 0; g < heads; ++g, out += run) {
      const float by = static_cast<float>(1 / (1 + std::exp(-static_cast<double>(in[g]))));
      std::for_each(out, out + run, [by](float& x) { x *= by; });
    }
  });
}

void op_elementwise(CpuBatch& cx, const Op& op) {
  const kernels::Table& k = cx.table;
  cx.for_rows(cx.rows, [&](int32_t t) {
    const float* in = cx.buffer(op.in) + t * cx.width(op.in) + op.in_col;
    float* out = cx.buffer(op.out) + t * cx.width(op.out) + op.out_col;
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
void op_select(CpuBatch& cx) {
  if (cx.spec.embed || cx.in_part()) return;
  if constexpr (model::kNextn) note_states(cx);
  float* x = cx.buffer(Buf::kX);
  const int64_t width = cx.width(Buf::kX);
  int32_t kept = cx.spec.logits_at;  // logits of all batches of a pass are contiguous
  for (Lane& lane : cx.lanes) {
    const int32_t from = lane.row + lane.part.first_row;
    lane.first += lane.part.first_row;
    lane.token += lane.part.first_row;
    lane.row = kept;
    lane.rows = lane.part.n_rows;
    std::memmove(x + kept * width, x + from * width,
                 static_cast<size_t>(lane.rows * width) * sizeof(float));
    kept += lane.rows;
  }
  cx.enter(cx.lanes[0]);
  cx.rows = kept - cx.spec.logits_at;
}

// Pools the rows of each input into one, or keeps them all. If an input takes several batches, sums
// of earlier batches are kept until this one is done, because it may have to be recomputed. Sums
// are accumulated token by token in double, the same in one batch and in several.
void op_pool(CpuBatch& cx, const Op& op) {
  const size_t n = static_cast<size_t>(op.n);
  if (cx.spec.pooling == model::Pooling::kNone) {
    for (int32_t t = 0; t < cx.rows; ++t) {
      std::copy_n(cx.buffer(op.in) + t * cx.width(op.in), n,
                  cx.buffer(op.out) + t * cx.width(op.out));
    }
    return;
  }
  double* kept = cx.working.pool_sums();
  double* sums = kept + n;
  const bool ranks = cx.spec.pooling == model::Pooling::kRank;
  const model::Pooling how = ranks ? cx.program.rank_pooling : cx.spec.pooling;
  int32_t n_texts = 0;
  const auto pool = [&](int32_t first, int32_t tokens) {
    const auto add_row = [&](int32_t t) {
      const float* x = cx.buffer(op.in) + t * cx.width(op.in);
      for (size_t i = 0; i < n; ++i) sums[i] += static_cast<double>(x[i]);
    };
    if (cx.spec.begins) {
      std::fill_n(sums, n, 0.0);
    } else {
      std::copy_n(kept, n, sums);
    }
    if (how == model::Pooling::kMean) {
      for (int32_t t = first; t < first + tokens; ++t) add_row(t);
    } else if (how == model::Pooling::kLast) {
      if (cx.spec.completes) add_row(first + tokens - 1);
    } else if (cx.spec.begins) {
      add_row(first);
    }
    if (!cx.spec.completes) {
      std::copy_n(sums, n, kept);
      return;
    }
    const bool mean = how == model::Pooling::kMean;
    const double by = mean ? 1.0 / (cx.spec.ends.empty() ? cx.first + tokens : tokens) : 1.0;
    float* out = cx.buffer(op.out) + n_texts++ * cx.width(op.out);
    for (size_t i = 0; i < n; ++i) out[i] = static_cast<float>(sums[i] * by);
  };
  if (cx.spec.ends.empty()) {
    pool(0, cx.rows);
  } else {
    cx.for_texts(pool);
  }
  cx.rows = n_texts;
}

}  // namespace sluice::session

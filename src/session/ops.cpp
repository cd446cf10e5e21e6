// The operations of a pass, one function each, over the rows of the batch. What is small is done by
// the calling thread; matrix products and attention are spread over the pool.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "session/rope.h"
#include "session/session.h"

namespace sluice::session {

using model::Buf;
using model::Op;
using model::OpKind;

bool Session::need(uint32_t unit) {
  residency::Residency& r = engine_.residency();
  if (r.ready(unit)) return true;
  r.set_cursor(unit);
  engine_.pump();
  return r.ready(unit);
}

bool Session::vectors_ready(const Op& op) {
  const auto there = [this](int32_t vec) {
    return vec < 0 ||
           need(engine_.residency().first_unit(engine_.plan().vec_item[static_cast<size_t>(vec)]));
  };
  if (!there(op.vec0) || !there(op.vec1)) return false;
  for (int32_t i = 0; i < op.n_parts; ++i) {
    if (!there(op.parts[static_cast<size_t>(i)].bias)) return false;
  }
  return true;
}

bool Session::run_op(const Op& op) {
  if (!cursor_.started && !vectors_ready(op)) return false;
  switch (op.kind) {
    case OpKind::kEmbed:
      return op_embed(op);
    case OpKind::kNorm:
      op_norm(op);
      return true;
    case OpKind::kMatmul:
      return op_matmul(op);
    case OpKind::kRope:
      op_rope(op);
      return true;
    case OpKind::kAttention:
      op_attention(op);
      return true;
    case OpKind::kActivate:
      op_activate(op);
      return true;
    case OpKind::kMoe:
      return op_moe(op);
    case OpKind::kShortConv:
      op_short_conv(op);
      return true;
    case OpKind::kSelect:
      op_select(op);
      return true;
    case OpKind::kAdd:
    case OpKind::kSoftCap:
    case OpKind::kScale:
      op_elementwise(op);
      return true;
  }
  return true;
}

void Session::fill_rope_tables() {
  const model::Program& p = engine_.program();
  for (size_t i = 0; i < p.ropes.size(); ++i) {
    const model::Rope& r = p.ropes[i];
    const bool is_long =
        r.hp.scaling == model::RopeScaling::kLongRope && engine_.plan().n_ctx > r.hp.n_ctx_orig;
    const int32_t factors = is_long ? r.factors_long : r.factors_short;
    fill_rope_table(r.hp, factors >= 0 ? engine_.vec(factors) : nullptr, position_, batch_,
                    engine_.rope_table(i));
  }
}

// Rows of the embedding come from the resident table where it is there, else by single reads.
bool Session::op_embed(const Op& op) {
  const model::Program& p = engine_.program();
  residency::Residency& r = engine_.residency();
  const model::Mat& m = p.mats[static_cast<size_t>(p.embedding)];
  const int32_t item = engine_.item_of_mat(p.embedding);
  if (!cursor_.started) {
    for (const model::Rope& rope : p.ropes) {
      for (const int32_t v : {rope.factors_short, rope.factors_long}) {
        if (v >= 0 && engine_.vec(v) == nullptr &&
            !need(r.first_unit(engine_.plan().vec_item[static_cast<size_t>(v)]))) {
          return false;
        }
      }
    }
    if (r.rows_under_way() > 0) return false;  // of a pass that was given up
    fill_rope_tables();
    cursor_.started = true;
  }
  const auto unit_of = [&](Token token) -> uint32_t {
    for (uint32_t u = r.first_unit(item); u < r.end_unit(item); ++u) {
      const residency::Unit& unit = r.plan().units[u];
      if (token < unit.row0 + unit.rows) return u;
    }
    return r.first_unit(item);
  };
  const auto held = [&](uint32_t u) { return r.plan().units[u].pinned && r.ready(u); };
  for (; cursor_.part < batch_; ++cursor_.part) {
    const Token token = history_[static_cast<size_t>(position_ + cursor_.part)];
    float* x = engine_.buffer(op.out) + cursor_.part * engine_.width(op.out);
    const uint32_t u = unit_of(token);
    if (held(u)) {
      const residency::Unit& unit = r.plan().units[u];
      if (r.packed(u)) {
        const kernels::Matrix w{m.type, true, unit.rows, m.cols, r.data(u)};
        engine_.table().unpack_row(w, token - unit.row0, x);
      } else {
        const uint8_t* row = r.data(u) + (token - unit.row0) * m.row_bytes;
        engine_.table().dequantize(m.type, row, m.cols, x);
      }
      row_held_[static_cast<size_t>(cursor_.part)] = 1;
      continue;
    }
    uint8_t* row = engine_.embedding_rows() + cursor_.part * m.row_bytes;
    const uint64_t offset = m.offset + static_cast<uint64_t>(token * m.row_bytes);
    if (!r.request_row(m.file, offset, static_cast<uint32_t>(m.row_bytes), row)) return false;
    row_held_[static_cast<size_t>(cursor_.part)] = 0;
  }
  if (r.rows_under_way() > 0) return false;
  const float* positions = op.vec0 >= 0 ? engine_.vec(op.vec0) : nullptr;
  for (int32_t t = 0; t < batch_; ++t) {
    float* x = engine_.buffer(op.out) + t * engine_.width(op.out);
    if (!row_held_[static_cast<size_t>(t)]) {
      engine_.table().dequantize(m.type, engine_.embedding_rows() + t * m.row_bytes, m.cols, x);
    }
    if (op.scale != 1) engine_.table().scale(x, op.scale, op.n, x);
    if (positions != nullptr) {
      engine_.table().add(x, positions + int64_t{position_ + t} * op.n, op.n, x);
    }
  }
  return true;
}

void Session::op_norm(const Op& op) {
  const kernels::Table& k = engine_.table();
  const float eps = engine_.program().hp.norm_eps;
  const float* weight = op.vec0 >= 0 ? engine_.vec(op.vec0) : nullptr;
  const float* bias = op.vec1 >= 0 ? engine_.vec(op.vec1) : nullptr;
  for_rows(rows_, [&](int32_t t) {
    const float* in = engine_.buffer(op.in) + t * engine_.width(op.in) + op.in_col;
    float* out = engine_.buffer(op.out) + t * engine_.width(op.out) + op.out_col;
    for (int32_t h = 0; h < op.heads; ++h) {
      const float* w = weight == nullptr ? nullptr : weight + (op.vec_per_head ? h * op.n : 0);
      if (op.norm == model::NormKind::kRms) {
        k.rms_norm(in + h * op.n, w, eps, op.n, out + h * op.n);
      } else {
        k.layer_norm(in + h * op.n, w, bias, eps, op.n, out + h * op.n);
      }
    }
  });
}

void Session::op_rope(const Op& op) {
  const model::HParams& hp = engine_.program().hp;
  const model::RopeHParams& rope = engine_.program().ropes[static_cast<size_t>(op.rope)].hp;
  const float* table = engine_.rope_table(static_cast<size_t>(op.rope));
  const int32_t half = rope.n_rot / 2;
  const int64_t heads = hp.n_head + hp.kv_heads(op.layer);  // keys follow queries in kQkv
  for_rows(rows_, [&](int32_t t) {
    const float* cos = table + static_cast<int64_t>(t) * rope.n_rot;
    float* head = engine_.buffer(op.in) + t * engine_.width(op.in);
    for (int64_t h = 0; h < heads; ++h, head += hp.head_dim_k) {
      engine_.table().rope(head, cos, cos + half, rope.n_rot, rope.neox);
    }
  });
}

void Session::op_activate(const Op& op) {
  const kernels::Table& k = engine_.table();
  for_rows(rows_, [&](int32_t t) {
    float* gate = engine_.buffer(op.in) + t * engine_.width(op.in);
    switch (op.act) {
      case model::Activation::kSiluMul:
        k.silu_mul(gate, gate + op.n, op.n, gate);
        break;
      case model::Activation::kGeluMul:
        k.gelu_mul(gate, gate + op.n, op.n, gate);
        break;
      case model::Activation::kGeluTanh:
        k.gelu_tanh(gate, op.n, gate);
        break;
    }
  });
}

void Session::op_elementwise(const Op& op) {
  const kernels::Table& k = engine_.table();
  for_rows(rows_, [&](int32_t t) {
    const float* in = engine_.buffer(op.in) + t * engine_.width(op.in);
    float* out = engine_.buffer(op.out) + t * engine_.width(op.out);
    if (op.kind == OpKind::kSoftCap) {
      k.soft_cap(in, op.softcap, op.n, out);
    } else if (op.kind == OpKind::kScale) {
      k.scale(in, op.scale, op.n, out);
    } else if (op.scale == 1) {
      k.add(out, in, op.n, out);
    } else {
      for (int32_t i = 0; i < op.n; ++i) out[i] += op.scale * in[i];
    }
  });
}

// Gated short convolution of LFM2: kQkv holds b|c|u; z = b*u is kept for the positions to come.
void Session::op_short_conv(const Op& op) {
  const float* weights = engine_.vec(op.vec0);  // [n][K], K contiguous
  const int32_t kernel = static_cast<int32_t>(engine_.program().hp.conv_kernel);
  if (position_ == 0) {
    for (int32_t j = 1; j < kernel; ++j) {
      std::memset(kv_.conv_row(op.layer, -j), 0, static_cast<size_t>(op.n) * sizeof(float));
    }
  }
  for (int32_t t = 0; t < rows_; ++t) {
    const float* b = engine_.buffer(op.in) + t * engine_.width(op.in);
    const float* c = b + op.n;
    const float* u = c + op.n;
    float* z = kv_.conv_row(op.layer, position_ + t);
    float* out = engine_.buffer(op.out) + t * engine_.width(op.out);
    for (int32_t i = 0; i < op.n; ++i) z[i] = b[i] * u[i];
    for (int32_t i = 0; i < op.n; ++i) out[i] = 0;
    for (int32_t j = 0; j < kernel; ++j) {
      const float* past = kv_.conv_row(op.layer, position_ + t - kernel + 1 + j);
      for (int32_t i = 0; i < op.n; ++i) out[i] += weights[i * kernel + j] * past[i];
    }
    for (int32_t i = 0; i < op.n; ++i) out[i] *= c[i];
  }
}

// Moves the rows whose logits are wanted to the front.
void Session::op_select(const Op& op) {
  if (wanted_ == Wanted::kAllLogits) return;
  if (position_ + batch_ < pass_end_) {
    rows_ = 0;
    return;
  }
  float* x = engine_.buffer(Buf::kX);
  const int64_t width = engine_.width(Buf::kX);
  if (rows_ > 1) {
    std::memcpy(x, x + (rows_ - 1) * width, static_cast<size_t>(op.n) * sizeof(float));
  }
  rows_ = 1;
}

}  // namespace sluice::session

// Recurrent layers: convolution over time, recurrences over a matrix per head, and Mamba's
// selective scan. Channels (columns of a state) are independent, so they fill the vectors and no
// sum crosses lanes. A column's result does not depend on how columns are split over calls or
// tokens over batches. A call takes a few columns through all its tokens, so their state stays in
// L1.
#pragma once

#include "kernels/generic/vector_math.h"
#include "kernels/kernels.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

// kVecs whole vectors or, with kTail, the first n lanes of one.
template <int kVecs, bool kTail>
struct Columns {
  static_assert(!kTail || kVecs == 1);
  F32 v[kVecs];

  static SLUICE_INLINE_METHOD Columns of(F32 x) {
    Columns r;
    SLUICE_UNROLL for (int i = 0; i < kVecs; ++i) r.v[i] = x;
    return r;
  }
  static SLUICE_INLINE_METHOD Columns at(const float* p, int n) {
    Columns r;
    if constexpr (kTail) {
      r.v[0] = load_n(p, n);
    } else {
      SLUICE_UNROLL for (int i = 0; i < kVecs; ++i) r.v[i] = load(p + i * kLanes);
    }
    return r;
  }
  SLUICE_INLINE_METHOD void to(float* p, int n) const {
    if constexpr (kTail) {
      store_n(p, v[0], n);
    } else {
      SLUICE_UNROLL for (int i = 0; i < kVecs; ++i) store(p + i * kLanes, v[i]);
    }
  }
  // this + x * y; x is a Columns, or an F32 for all columns.
  SLUICE_INLINE_METHOD void add_product(F32 x, const Columns& y) {
    SLUICE_UNROLL for (int i = 0; i < kVecs; ++i) v[i] = mul_add(x, y.v[i], v[i]);
  }
  SLUICE_INLINE_METHOD void add_product(const Columns& x, const Columns& y) {
    SLUICE_UNROLL for (int i = 0; i < kVecs; ++i) v[i] = mul_add(x.v[i], y.v[i], v[i]);
  }
  SLUICE_INLINE_METHOD void multiply(F32 x) {
    SLUICE_UNROLL for (int i = 0; i < kVecs; ++i) v[i] = v[i] * x;
  }
  SLUICE_INLINE_METHOD void multiply(const Columns& x) {
    SLUICE_UNROLL for (int i = 0; i < kVecs; ++i) v[i] = v[i] * x.v[i];
  }
};

// Runs F::run<kVecs, kTail>(args, first, n) over columns [0, n_columns).
template <class F, class Args>
SLUICE_INLINE void over_columns(const Args& args, int64_t n_columns) {
  int64_t c = 0;
  for (; c + 4 * kLanes <= n_columns; c += 4 * kLanes) F::template run<4, false>(args, c, 0);
  for (; c + kLanes <= n_columns; c += kLanes) F::template run<1, false>(args, c, 0);
  if (c < n_columns) F::template run<1, true>(args, c, static_cast<int>(n_columns - c));
}

// --- convolution ---------------------------------------------------------------------------------
struct Convolve {
  // Last token first: in place, only later tokens read a token's row.
  template <int kVecs, bool kTail>
  SLUICE_NOINLINE void run(const ConvArgs& a, int64_t c, int n) {
    using Cols = Columns<kVecs, kTail>;
    const int32_t past = a.n_taps - 1;
    for (int32_t t = a.n_tokens - 1; t >= 0; --t) {
      Cols sum = a.bias == nullptr ? Cols::of(splat(0.0f)) : Cols::at(a.bias + c, n);
      for (int32_t j = 0; j <= past; ++j) {
        const int32_t from = t - past + j;
        const float* x =
            from < 0 ? a.before + int64_t{past + from} * a.ld_before : a.x + int64_t{from} * a.ld;
        sum.add_product(Cols::at(a.weights + int64_t{j} * a.ld_weights + c, n), Cols::at(x + c, n));
      }
      if (a.silu) {
        SLUICE_UNROLL for (int i = 0; i < kVecs; ++i) sum.v[i] = silu(sum.v[i]);
      }
      sum.to(a.x + int64_t{t} * a.ld + c, n);
    }
  }
};
void convolve(const ConvArgs& a) {
  over_columns<Convolve>(a, a.n_channels);
}

// --- recurrences over a matrix -------------------------------------------------------------------
template <StateKind kKind>
struct UpdateState {
  template <int kVecs, bool kTail>
  SLUICE_NOINLINE void run(const StateArgs& a, int64_t c, int n) {
    using Cols = Columns<kVecs, kTail>;
    const int32_t decay_step = a.decay_per_key ? 1 : 0;
    for (int32_t t = 0; t < a.n_tokens; ++t) {
      const float *r = a.r.row(t), *k = a.k.row(t), *decay = a.decay.row(t);
      const float* from = (t == 0 ? a.before : a.after) + c;
      float* to = a.after + c;
      const Cols given = Cols::at(a.v.row(t) + c, n);
      Cols v = given, seen = Cols::of(splat(0.0f)), out = seen;
      if constexpr (kKind == StateKind::kDelta) {
        for (int32_t i = 0; i < a.n_keys; ++i) {
          seen.add_product(splat(k[i] * decay[i * decay_step]), Cols::at(from + i * a.ld, n));
        }
        SLUICE_UNROLL for (int i = 0; i < kVecs; ++i) v.v[i] = v.v[i] - seen.v[i];
      }
      if constexpr (kKind == StateKind::kGeneral) {
        const float* removed = a.a.row(t);
        for (int32_t i = 0; i < a.n_keys; ++i) {
          seen.add_product(splat(removed[i]), Cols::at(from + i * a.ld, n));
        }
      }
      if (a.beta.at != nullptr) v.multiply(splat(*a.beta.row(t)));
      const float* added = a.b.at == nullptr ? nullptr : a.b.row(t);
      float skip = a.skip;
      for (int32_t i = 0; i < a.n_keys; ++i) {
        Cols s = Cols::at(from + i * a.ld, n);
        if constexpr (kKind == StateKind::kBonus) {
          out.add_product(splat(r[i]), s);
          skip += r[i] * k[i] * a.bonus[i];
        }
        s.multiply(splat(decay[i * decay_step]));
        s.add_product(splat(k[i]), v);
        if constexpr (kKind == StateKind::kGeneral) s.add_product(splat(added[i]), seen);
        s.to(to + i * a.ld, n);
        if constexpr (kKind != StateKind::kBonus) out.add_product(splat(r[i]), s);
      }
      if (skip != 0) out.add_product(splat(skip), given);
      out.to(a.out + int64_t{t} * a.out_stride + c, n);
    }
  }
};

void update_state(const StateArgs& a) {
  switch (a.kind) {
    case StateKind::kPlain:
      return over_columns<UpdateState<StateKind::kPlain>>(a, a.n_columns);
    case StateKind::kDelta:
      return over_columns<UpdateState<StateKind::kDelta>>(a, a.n_columns);
    case StateKind::kGeneral:
      return over_columns<UpdateState<StateKind::kGeneral>>(a, a.n_columns);
    case StateKind::kBonus:
      return over_columns<UpdateState<StateKind::kBonus>>(a, a.n_columns);
  }
}

// --- Mamba's selective scan ----------------------------------------------------------------------
struct Scan {
  template <int kVecs, bool kTail>
  SLUICE_NOINLINE void run(const ScanArgs& a, int64_t c, int n) {
    using Cols = Columns<kVecs, kTail>;
    const Cols skip = Cols::at(a.d + c, n);
    for (int32_t t = 0; t < a.n_tokens; ++t) {
      const float *b = a.b.row(t), *r = a.c.row(t);
      const float* from = (t == 0 ? a.before : a.after) + c;
      float* to = a.after + c;
      const Cols dt = Cols::at(a.dt.row(t) + c, n), x = Cols::at(a.x.row(t) + c, n);
      Cols gain = x, out = x;
      gain.multiply(dt);
      out.multiply(skip);
      for (int32_t i = 0; i < a.n_state; ++i) {
        Cols decay = Cols::at(a.a + i * a.ld_a + c, n), s = Cols::at(from + i * a.ld, n);
        decay.multiply(dt);
        SLUICE_UNROLL for (int j = 0; j < kVecs; ++j) decay.v[j] = exp(decay.v[j]);
        s.multiply(decay);
        s.add_product(splat(b[i]), gain);
        s.to(to + i * a.ld, n);
        out.add_product(splat(r[i]), s);
      }
      out.to(a.out + int64_t{t} * a.out_stride + c, n);
    }
  }
};
void scan(const ScanArgs& a) {
  over_columns<Scan>(a, a.n_columns);
}

}  // namespace
}  // namespace sluice::kernels::SLUICE_TARGET

// Fits blocks of 256 values whose entries are from a codebook: x = c * entry with c = d * (2 s + 1)
// * unit, s an integer for each sub-block. For an entry, the weighted error is A - 2 c P + c^2 Q,
// where P is the sum of w x entry and Q that of w entry^2. They do not depend on c, so P and Q of
// all entries are computed once. The best entry for c has the largest 2 P - c Q, and those that are
// best for some c are few: the upper envelope of lines. All scales are then tried over these alone.
#pragma once

#include <array>

#include "convert/codebook_tables.h"
#include "convert/error_weights.h"

namespace sluice::convert {
namespace {

// --- the entries that are best for some scale

struct Match {
  float p = 0, q = 0;
  int entry = 0;
  bool up = false;  // IQ1_S, IQ1_M: 1/8 is added to the entry, not subtracted
};

// Entries in the order of growing scales: at[k] is best below until[k].
struct Envelope {
  static constexpr int kMax = 24;
  int n = 0;
  Match at[kMax];
  float until[kMax];

  [[nodiscard]] const Match& best(float c) const {
    int k = 0;
    while (k + 1 < n && c >= until[k]) ++k;
    return at[k];
  }
};

constexpr float kShift = 0.125f;  // of the entries of IQ1_S and IQ1_M, up or down

using F16 = Lanes<16>;
typedef int32_t I16 __attribute__((vector_size(64)));
constexpr int kMaxEntries = 2048, kVectors = kMaxEntries / 16;

// Scales to try: all of a range, and one beyond it, where values of equal size have an entry.
struct Range {
  float from, to, far;
};

inline float gain_of(const Match& m, float c) {
  return 2 * m.p - c * m.q;
}

// P and Q of all entries for one group of values.
class EntrySums {
 public:
  // `x` are the SIZE values that the entries are to stand for, `w` the weights of their errors.
  template <int SIZE>
  void load(const CodebookTable& table, const float* x, const float* w) {
    planes_[0] = {};
    add<SIZE, false>(table, x, w);
  }

  // The same for two planes of entries: those with 1/8 subtracted, and with 1/8 added.
  template <int SIZE>
  void load_shifted(const CodebookTable& table, const float* x, const float* w) {
    float sum = 0, weights = 0;
    for (int i = 0; i < SIZE; ++i) {
      sum += w[i] * x[i];
      weights += w[i];
    }
    planes_[0] = {-kShift * sum, kShift * kShift * weights};
    planes_[1] = {kShift * sum, kShift * kShift * weights};
    add<SIZE, true>(table, x, w);
  }

  // The entries of `n` planes from `plane` on that are best for scales of a range, and the best for
  // its far end.
  void find_envelope(int plane, int n, const Range& range, Envelope* out) {
    first_ = plane;
    end_ = plane + n;
    out->n = 1;
    Match best[kScales];
    find_best({range.from, __builtin_sqrtf(range.from * range.to), range.to, range.far}, best);
    Match low = out->at[0] = best[0];
    for (int i = 1; i < kScales; ++i) {
      const Match& high = best[i];
      if (!(high.q < low.q)) continue;
      if (i + 1 < kScales || range.far <= range.to) {
        collect(low, high);
        add_between(low, high, out);
      }
      out->at[out->n++] = low = high;
    }
    for (int k = 0; k + 1 < out->n; ++k) {
      const Match &a = out->at[k], &b = out->at[k + 1];
      out->until[k] = 2 * (a.p - b.p) / (a.q - b.q);
    }
  }

 private:
  struct Plane {
    float more_p = 0, more_q = 0;
  };

  static constexpr int kScales = 4;
  using Scales = std::array<float, kScales>;

  // Sums stay in registers while the table is read from front to back.
  template <int SIZE, bool SHIFTED>
  void add(const CodebookTable& table, const float* x, const float* w) {
    vectors_ = table.entries / 16;
    F16 wx[SIZE], weight[SIZE], shifted[SIZE];
    for (int i = 0; i < SIZE; ++i) {
      wx[i] = all<F16>(w[i] * x[i]);
      weight[i] = all<F16>(w[i]);
      shifted[i] = all<F16>(w[i] * 2 * kShift);
    }
    const float* from = table.values.data();
    for (int k = 0; k < vectors_; ++k) {
      F16 p{}, q{}, r{};
#pragma GCC unroll 8
      for (int i = 0; i < SIZE; ++i, from += 16) {
        F16 v;
        std::memcpy(&v, from, sizeof v);
        p += wx[i] * v;
        q += weight[i] * (v * v);
        if constexpr (SHIFTED) r += shifted[i] * v;
      }
      p_[k] = p;
      q_[0][k] = SHIFTED ? q - r : q;
      if constexpr (SHIFTED) q_[1][k] = q + r;
    }
  }

  [[nodiscard]] Match match(int plane, int k, int lane) const {
    return {p_[k][lane] + planes_[plane].more_p, q_[plane][k][lane] + planes_[plane].more_q,
            16 * k + lane, plane == 1};
  }

  // The best entries for some scales, in one pass over all.
  void find_best(const Scales& scales, Match* out) const {
    find_best_of(first_, scales, out);
    if (end_ - first_ == 1) return;
    Match other[kScales];
    find_best_of(first_ + 1, scales, other);
    for (int i = 0; i < kScales; ++i) {
      if (gain_of(other[i], scales[i]) > gain_of(out[i], scales[i])) out[i] = other[i];
    }
  }
  void find_best_of(int plane, const Scales& scales, Match* out) const {
    const F16* q = q_[plane];
    F16 most[kScales], c[kScales];
    I16 where[kScales];
    for (int i = 0; i < kScales; ++i) {
      most[i] = all<F16>(-3e38f);
      c[i] = all<F16>(scales[i]);
      where[i] = I16{};
    }
    for (int k = 0; k < vectors_; ++k) {
      const F16 twice = 2.0f * p_[k], q_now = q[k];
      const I16 now = I16{} + k;
#pragma GCC unroll 4
      for (int i = 0; i < kScales; ++i) {
        const F16 gain = twice - c[i] * q_now;
        const I16 better = gain > most[i];
        most[i] = better ? gain : most[i];
        where[i] = better ? now : where[i];
      }
    }
    for (int i = 0; i < kScales; ++i) out[i] = first_of_best(plane, most[i], where[i]);
  }
  [[nodiscard]] Match first_of_best(int plane, const F16& most, const I16& where) const {
    float gains[16];
    int32_t at[16];
    std::memcpy(gains, &most, sizeof gains);
    std::memcpy(at, &where, sizeof at);
    int lane = 0;
    for (int l = 1; l < 16; ++l) {
      const bool first = gains[l] == gains[lane] && at[l] < at[lane];
      if (gains[l] > gains[lane] || first) lane = l;
    }
    return match(plane, at[lane], lane);
  }

  // Only entries above the line from one to the other can be best between them.
  void collect(const Match& low, const Match& high) {
    n_found_ = 0;
    const float dp = low.p - high.p, dq = low.q - high.q;
    if (!(dq > 0)) return;
    for (int plane = first_; plane < end_; ++plane) {
      const F16* q = q_[plane];
      const auto [more_p, more_q] = planes_[plane];
      const F16 base =
          all<F16>((high.p - more_p) * dq - (high.q - more_q) * dp + 1e-6f * size_of(high.p * dq));
      for (int k = 0; k < vectors_; ++k) {
        const I16 above = p_[k] * dq - q[k] * dp > base;
        int64_t found[8];
        std::memcpy(found, &above, sizeof found);
        if ((found[0] | found[1] | found[2] | found[3] | found[4] | found[5] | found[6] |
             found[7]) == 0)
          continue;
        for (int l = 0; l < 16 && n_found_ < kMaxFound; ++l) {
          if (above[l] != 0) found_[n_found_++] = match(plane, k, l);
        }
      }
    }
  }

  // Appends, in order, the entries that are best between two scales.
  void add_between(const Match& low, const Match& high, Envelope* out) const {
    const float dq = low.q - high.q;
    if (out->n + 4 >= Envelope::kMax || !(dq > 0) || n_found_ == 0) return;
    const float tie = 2 * (low.p - high.p) / dq;
    const Match* between = &found_[0];
    for (int i = 1; i < n_found_; ++i) {
      if (gain_of(found_[i], tie) > gain_of(*between, tie)) between = &found_[i];
    }
    const float common = gain_of(low, tie);
    if (!(gain_of(*between, tie) > common + 1e-5f * size_of(common))) return;
    if (between->q >= low.q || between->q <= high.q) return;
    add_between(low, *between, out);
    out->at[out->n++] = *between;
    add_between(*between, high, out);
  }

  static constexpr int kMaxFound = 512;
  F16 p_[kVectors], q_[2][kVectors];
  Plane planes_[2];
  Match found_[kMaxFound];
  int vectors_ = 0, first_ = 0, end_ = 1, n_found_ = 0;
};

// --- sub-blocks

struct Sums {
  float p = 0, q = 0;
  // The change of the error from that of zeros.
  [[nodiscard]] float error(float c) const { return c * (c * q - 2 * p); }
  // The same with the best scale for these entries.
  [[nodiscard]] float least() const { return p > 0 && q > 0 ? -p * p / q : 0; }
};

// UNITS groups of values with one scale. IQ1_S has envelopes for both shifts of a sub-block.
template <int UNITS, int SHIFTS>
struct SubBlock {
  Envelope units[SHIFTS][UNITS];

  [[nodiscard]] Sums sums(float c, int shift) const {
    Sums s;
    for (const Envelope& unit : units[shift]) {
      const Match& m = unit.best(c);
      s.p += m.p;
      s.q += m.q;
    }
    return s;
  }
  [[nodiscard]] int better_shift(float c) const {
    return SHIFTS > 1 && sums(c, 1).error(c) < sums(c, 0).error(c) ? 1 : 0;
  }
  // The scale with the smallest error.
  [[nodiscard]] float fit(const Range& range) const {
    float best = 0, least = 0;
    for (int shift = 0; shift < SHIFTS; ++shift) {
      for (float c = range.from;; c = c * 1.1f < range.to ? c * 1.1f : range.far) {
        const Sums s = sums(c, shift);
        if (s.least() < least) {
          least = s.least();
          best = s.p / s.q;
        }
        if (c == range.far) break;
      }
    }
    return best;
  }
};

// --- blocks of 256 values

struct BlockScales {
  float d = 0;
  int scale[16] = {};
};

// Chooses the integer scales for d. Returns the error; *step is the least-squares step of d.
template <int SUBS, int MOST, class Sub>
float choose_scales(const Sub (&subs)[SUBS], const float* wanted, float unit, float d, int* scale,
                    float* step) {
  float error = 0, across = 0, along = 0;
  for (int j = 0; j < SUBS; ++j) {
    const float near = d > 0 ? (wanted[j] / (d * unit) - 1) / 2 : 0;
    const int at = static_cast<int>(near < 0 ? 0 : near > MOST ? MOST : near + 0.5f);
    float least = 3e38f;
    Sums best;
    for (int s = at > 0 ? at - 1 : 0; s <= at + 1 && s <= MOST; ++s) {
      const float c = d * unit * static_cast<float>(2 * s + 1);
      const Sums sums = subs[j].sums(c, subs[j].better_shift(c));
      if (!(sums.error(c) < least)) continue;
      least = sums.error(c);
      best = sums;
      scale[j] = s;
    }
    const float u = unit * static_cast<float>(2 * scale[j] + 1);
    error += least;
    across += u * best.p;
    along += u * u * best.q;
  }
  *step = along > 0 ? across / along - d : 0;
  return error;
}

template <int SUBS, int MOST, class Sub>
BlockScales fit_scales(const Sub (&subs)[SUBS], const float* wanted, float unit) {
  float peak = 0;
  for (int j = 0; j < SUBS; ++j) peak = wanted[j] > peak ? wanted[j] : peak;
  BlockScales out;
  if (peak == 0) return out;
  float least = 3e38f;
  for (const float share : {1.0f, 1.07f, 0.93f, 0.86f}) {
    float d = as_stored_away(peak * share / (unit * (2 * MOST + 1)));
    for (int round = 0; round < 3; ++round) {
      int scale[16] = {};
      float step = 0;
      const float error = choose_scales<SUBS, MOST>(subs, wanted, unit, d, scale, &step);
      if (!(error < least)) break;
      least = error;
      out.d = d;
      std::memcpy(out.scale, scale, sizeof scale);
      const float next = as_stored(d + step);
      if (next == d) break;
      d = next;
    }
  }
  return out;
}

}  // namespace
}  // namespace sluice::convert

// Rotary position embedding tables (https://arxiv.org/abs/2104.09864) with linear scaling, YaRN
// (2309.00071), per-dimension factors (Llama 3's rope_freqs, LongRoPE 2402.13753).
#pragma once

#include <cstdint>

#include "model/program.h"

namespace sluice::session {

// Tokens of a picture in rows of `columns`, at the position `time`; the first is cell `first`.
struct RopeGrid {
  int32_t time = 0, first = 0, columns = 1;
};

// For tokens at positions first .. first + n - 1: row t holds n_rot/2 cosines, then n_rot/2 sines,
// both multiplied by the scaling's attention factor. `factors` [n_rot/2] divide the angles; may be
// null. With `back` the rows rotate by the same angles backwards, without the attention factor.
void fill_rope_table(const model::RopeHParams& rope, const float* factors, int32_t first, int32_t n,
                     float* out, bool back = false);
// The same for tokens on a grid (M-RoPE).
void fill_rope_table(const model::RopeHParams& rope, const float* factors, const RopeGrid& grid,
                     int32_t n, float* out, bool back = false);

}  // namespace sluice::session

// The only public header of the kernels: one table of functions per instruction set.
// Kernels know blocks and pointers, not models. A weight matrix is [rows][cols] with contiguous
// cols, in the file's block format or packed (rows interleaved for the target). Both layouts run
// the same arithmetic. So a result is bit-identical for either layout, for any number of tokens per
// call, and however rows are split over threads.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::kernels {

// Quantization types; the numbers are ggml's type ids.
enum class Type : uint32_t {
#define SLUICE_ELEMENT_TYPE(NAME, name, id, bytes) k##NAME = id,
#define SLUICE_BLOCK_TYPE(NAME, name, id, values, bytes) k##NAME = id,
#include "kernels/types.def"
};

using f16 = uint16_t;  // IEEE binary16 bits

// Tokens that are quantized together. A target may interleave the values of this many, so that a
// matrix multiplication finds those of four columns in one place.
inline constexpr int32_t kActTile = 4;

// What a quantization type is multiplied with: f32 activations, or int8 with an f32 scale per 32.
enum class ActFormat : uint8_t { kF32, kQ8 };

struct Matrix {
  Type type;
  bool packed;
  int64_t rows, cols;  // cols is a multiple of the type's block size
  const void* data;
};

// n_tokens activation vectors of `cols` values. Only the one in the type's ActFormat is read.
struct Acts {
  const float* f32;  // token t at f32 + t * ld
  int64_t ld;        // in floats
  const void* q8;    // token t at q8 + t * q8_bytes(cols), as quantize_q8 left them
  int32_t n_tokens;
};

// y[t * ldy + r] = (add ? y : 0) + scale * (factor * W[r] . x[t] + bias[r]) for r in [r0, r1).
struct MatmulArgs {
  Matrix w;
  int64_t r0, r1;  // r0 is a multiple of row_group; r1 too, or w.rows
  Acts x;
  const float* bias;  // [rows] or null
  float scale;        // 1 for none
  bool add;
  float* y;          // row 0 of token 0
  int64_t ldy;       // in floats
  void* scratch;     // matmul_scratch(type, cols) bytes, 64-byte aligned, one per thread
  float factor = 1;  // of all weights
};

// Attention of n_rows query rows (tokens x the query heads of one KV head) over one KV head:
// out[i] = softmax(softcap(scale * q[i] K^T) + bias) V over positions [begin_i, end_i), in f32.
// Rows are bit-identical whether computed alone, together, or in parts, if parts are cut at
// multiples of kAttentionSplit. With `partial_max` and `partial_sum` set, out is not normalized and
// each row's maximum and sum are written there, for attention_merge over the parts.
// A row's sink is a score without a value: exp(sink) is one more term of the denominator.
//
// The KV cache may be quantized. In kQ8_0, kQ4_0 and the values of kQ2, a position is a row of
// blocks, each with a bf16 scale d per 32 values:
//   kQ8_0  32 values: d, then int8 codes                                   x = d * code
//   kQ4_0  32 values: d, then a byte for values j (low bits) and 16 + j    x = d * kKvLevels4[code]
//   kQ2    64 values: d of each half, then a byte for j, 16 + j, ..        x = d * (u + c u^3)
// where u = code - 1.5 and c = kKvCurve2: outer levels are wider apart, where values are rare.
// Keys of kQ4_0 are interleaved by kKvRun positions: for every 32 values the scales of all
// positions, then four bytes of each, then the next four. Their queries are rounded like
// activations (quantize_q8), so the dot products are integers.
// Keys of kQ2 are quantized by channel, kKvGroup positions together: a step for every channel, then
// a middle for every one (bf16, channels rounded up to 64), then a row of codes for each position
// in the order of a block, x = middle + step * u.
// In kQ4_0 and kQ2 a query row reads its own group of kKvGroup positions in f16, from a separate
// ring buffer, and the complete groups before it in the quantized layout.
enum class KvType : uint8_t { kF16, kQ8_0, kQ4_0, kQ2 };
inline constexpr int32_t kKvGroup = 64, kKvRun = 16;
inline constexpr float kKvCurve2 = 0.07f;
// 63/10.875 (u + 0.008 u^3) of u = code - 7.5, rounded: integers of seven bits.
inline constexpr int8_t kKvLevels4[16] = {-63, -50, -40, -30, -22, -15, -9, -3,
                                          3,   9,   15,  22,  30,  40,  50, 63};
// Version of these layouts: saved state with another version cannot be read.
inline constexpr uint64_t kKvForms = 2;
[[nodiscard]] constexpr bool kv_grouped(KvType type) {
  return type == KvType::kQ4_0 || type == KvType::kQ2;
}
// Bytes of one position of n values. The keys of kQ2 have kKvGroup times as many per group, those
// of kQ4_0 kKvRun times as many per run.
[[nodiscard]] constexpr int64_t kv_row_bytes(KvType type, int64_t n) {
  switch (type) {
    case KvType::kF16:
      return 2 * n;
    case KvType::kQ8_0:
      return (n + 31) / 32 * 34;
    case KvType::kQ4_0:
      return (n + 31) / 32 * 18;
    case KvType::kQ2:
      return (n + 63) / 64 * 20;
  }
  return 0;
}

inline constexpr int32_t kAttentionSplit = 512;
inline constexpr float kNoSink = -__builtin_inff();
inline constexpr int32_t kRelativeReach = 128;  // farther positions count as this far

struct AttentionArgs {
  const float* q;  // row i at q + i * q_stride, [dk]
  int64_t q_stride;
  const void* k;  // [positions][dk], f16 or k_type
  const void* v;  // [positions][dv]
  int32_t n_rows, dk, dv;
  const int32_t* begin;  // [n_rows] first position seen
  const int32_t* end;    // [n_rows] one past the last; end > begin
  float scale;
  float softcap;       // 0: none; otherwise x -> softcap * tanh(x / softcap)
  const float* slope;  // [n_rows] or null: ALiBi, the bias of p is -slope[i] * |p - position[i]|
  const int32_t* position;  // [n_rows] the row's own position, read where slope is set
  const float* sink;        // [n_rows] or null; not for partial results: the merge applies it
  float* out;               // row i at out + i * out_stride, [dv]
  int64_t out_stride;
  float* partial_max;  // [n_rows] or null
  float* partial_sum;  // [n_rows] or null
  void* scratch;       // attention_scratch(n_rows, dk, dv) bytes, 64-byte aligned
  int64_t v_stride;    // distance between positions of v, in values; 0: dv. Must be 0 if quantized
  KvType k_type, v_type;
  // Set if k_type or v_type is grouped: f16 rings of `recent_size` positions (a multiple of
  // kKvGroup) with the rows' own groups. Position p of k and v is position (p + recent_shift) %
  // recent_size here. `position` is read then too: it says which group is the row's own.
  const f16 *recent_k, *recent_v;
  int32_t recent_size;
  int64_t recent_shift;
  // Added to the dot product of a row and position p before `scale`, or null: relative[buckets[d +
  // kRelativeReach] * relative_stride], where d = p - position[i], clamped to +-kRelativeReach.
  const float* relative;
  int64_t relative_stride;
  const uint8_t* buckets;  // [2 * kRelativeReach + 1]
};

// x > 0: positive x^2 + linear x; else negative (e^min(x, below) - 1 - x) + linear x
// (https://arxiv.org/abs/2411.13010).
struct Xielu {
  float positive, negative, linear, below;
};

// --- recurrent layers: token t's row is at `at` + t * stride -------------------------------------
struct TokenRows {
  const float* at = nullptr;
  int64_t stride = 0;  // in floats
  [[nodiscard]] const float* row(int64_t t) const { return at + t * stride; }
};

// Causal convolution of each channel over time, in place: x[t] = silu?(bias + sum over taps j of
// weights[j] * x[t - n_taps + 1 + j]). The rows before x are in `before`, oldest first.
struct ConvArgs {
  float* x;  // token t, channel c at x + t * ld + c
  int64_t ld;
  const float* before;  // [n_taps - 1] rows, ld_before apart
  int64_t ld_before;
  const float* weights;  // [n_taps] rows, ld_weights apart
  int64_t ld_weights;
  const float* bias;  // [n_channels] or null
  int64_t n_channels;
  int32_t n_taps, n_tokens;
  bool silu;
};

// A recurrence over some columns of a state S [n_keys][columns]:
//   kPlain    S = decay S + k v^T, out = S^T r
//   kDelta    first replaces v by v - (decay S)^T k
//   kGeneral  S also gains b (S^T a)^T of the previous S
//   kBonus    out uses the previous S, and skip gains sum(r * k * bonus)
// In all of them v is multiplied by beta if given (after the replacement), and out gains skip * v
// with the v of the arguments. The first token reads S from `before`, which may be `after`.
enum class StateKind : uint8_t { kPlain, kDelta, kGeneral, kBonus };
struct StateArgs {
  StateKind kind;
  const float* before;  // [n_keys] rows, ld apart
  float* after;
  int64_t ld;
  int32_t n_keys, n_columns, n_tokens;
  TokenRows r, k;   // [n_keys]
  TokenRows v;      // [n_columns]
  TokenRows decay;  // [n_keys], or one number
  bool decay_per_key;
  TokenRows beta;      // one number; null: 1
  TokenRows a, b;      // [n_keys], kGeneral
  const float* bonus;  // [n_keys], kBonus
  float skip;
  float* out;  // [n_columns] of each token
  int64_t out_stride;
};

// Mamba's selective scan over some channels: S[i] = exp(dt * A[i]) S[i] + b[i] dt x,
// out = sum over i of c[i] S[i] + d x.
struct ScanArgs {
  const float* before;  // [n_state] rows, ld apart; may be `after`
  float* after;
  int64_t ld;
  int32_t n_state, n_columns, n_tokens;
  TokenRows dt, x;  // [n_columns]
  TokenRows b, c;   // [n_state]
  const float* a;   // [n_state] rows, ld_a apart
  int64_t ld_a;
  const float* d;  // [n_columns]
  float* out;      // [n_columns] of each token
  int64_t out_stride;
};

// Whether all n weights (whole blocks in file layout, at any alignment) are finite: no NaN, no
// infinity. Reads only the blocks' scales where these decide, so it costs less than reading all.
[[nodiscard]] bool all_finite(Type type, const void* src, int64_t n);

struct Table {
  const char* name;   // "scalar", "wasm128", "wasmrelaxed", "avx2", "avx512vnni", "neon", ...
  int32_t row_group;  // rows interleaved in a packed group; packed data is padded to whole groups

  bool (*supports)(Type type);
  ActFormat (*act_format)(Type type);

  // --- weights ---------------------------------------------------------------------------------
  // Bytes of one packed group of row_group rows; at least their size in file layout.
  size_t (*packed_group_bytes)(Type type, int64_t cols);
  // Packs n_rows <= row_group rows from file layout (contiguous) into one group at dst, 64-byte
  // aligned, not overlapping src.
  void (*pack_group)(Type type, const void* src, int32_t n_rows, int64_t cols, void* dst);
  // Dequantizes n values (whole blocks) of file layout.
  void (*dequantize)(Type type, const void* src, int64_t n, float* out);
  // Dequantizes row `row` of a packed matrix: out[cols].
  void (*unpack_row)(const Matrix& packed, int64_t row, float* out);

  // --- activations -----------------------------------------------------------------------------
  size_t (*q8_bytes)(int64_t cols);  // one token, 64-byte multiple; cols is rounded up to 32
  // Rounds to nearest, ties to even; the scale per 32 values maps the largest to 120..127. Tokens
  // that are multiplied together are quantized together, or in runs of kActTile.
  void (*quantize_q8)(const float* x, int64_t ld, int64_t cols, int32_t n_tokens, void* out);

  // --- matrix multiplication -------------------------------------------------------------------
  size_t (*matmul_scratch)(Type type, int64_t cols);
  void (*matmul)(const MatmulArgs& args);

  // --- attention -------------------------------------------------------------------------------
  size_t (*attention_scratch)(int32_t n_rows, int32_t dk, int32_t dv);
  void (*attention)(const AttentionArgs& args);
  // Merges n_parts partial results of one row, part p at partial + p * stride, [dv], into out[dv].
  // sink: the row's sink, or kNoSink.
  void (*attention_merge)(const float* partial, int64_t stride, const float* part_max,
                          const float* part_sum, int32_t n_parts, int32_t dv, float sink,
                          float* out);

  // --- vectors (n values; out may alias an input of the same shape) ------------------------------
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t n, float* out);
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float eps, int64_t n,
                     float* out);  // weight and bias may be null (also in rms_norm)
  // Rotates one head in place by cos[n_rot/2], sin[n_rot/2]; pairs (2i, 2i+1), or with neox
  // (i, i + n_rot/2). Values from n_rot on are unchanged.
  void (*rope)(float* x, const float* cos, const float* sin, int32_t n_rot, bool neox);
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* out);
  void (*gelu_mul)(const float* gate, const float* up, int64_t n, float* out);  // tanh form
  void (*gelu_tanh)(const float* x, int64_t n, float* out);
  void (*gelu_erf)(const float* x, int64_t n, float* out);
  void (*silu)(const float* x, int64_t n, float* out);
  void (*xielu)(const float* x, const Xielu& by, int64_t n, float* out);
  void (*add)(const float* a, const float* b, int64_t n, float* out);
  void (*scale)(const float* x, float factor, int64_t n, float* out);
  void (*soft_cap)(const float* x, float cap, int64_t n, float* out);
  void (*softmax)(const float* x, int64_t n, float* out);
  void (*f32_to_f16)(const float* x, int64_t n, f16* out);  // rounds to nearest even
  void (*f16_to_f32)(const f16* x, int64_t n, float* out);
  int64_t (*argmax)(const float* x, int64_t n);  // the first of equal maxima
  // scale * x / max(|x|, eps), where |x| is the Euclidean norm.
  void (*l2_norm)(const float* x, float scale, float eps, int64_t n, float* out);
  void (*sigmoid)(const float* x, int64_t n, float* out);
  void (*tanh)(const float* x, int64_t n, float* out);
  void (*exp)(const float* x, int64_t n, float* out);       // 0 below -86.6, e^88.3 above 88.3
  void (*softplus)(const float* x, int64_t n, float* out);  // log(1 + e^x)

  // --- recurrent layers: bit-identical however columns and tokens are split over calls -----------
  void (*convolve)(const ConvArgs& args);
  void (*update_state)(const StateArgs& args);
  void (*scan)(const ScanArgs& args);

  // --- KV cache quantization ---------------------------------------------------------------------
  // Hadamard transform in place (its own inverse): of the greatest power of two values in n, then
  // of the rest in the same way. It spreads outlier channels over all values.
  void (*rotate)(float* x, int32_t n);
  // Quantizes one row to kQ8_0.
  void (*quantize_kv)(const float* x, int32_t n, void* out);
  // Quantizes a group of kKvGroup rows of n values to kQ4_0 or kQ2: keys of kQ2 by channel, keys of
  // kQ4_0 in runs, everything else by row.
  void (*quantize_kv_group)(KvType type, bool keys, const f16* rows, int32_t n, void* out);
};

// The best table for this CPU (cpuid natively, the chosen binary on wasm).
[[nodiscard]] const Table& best();
// The table of this name, or null if it is not built in or this CPU cannot run it.
[[nodiscard]] const Table* by_name(const char* name);
// Names of the tables that this machine can run, best first; null-terminated.
[[nodiscard]] const char* const* available();

}  // namespace sluice::kernels

// The reference kernels: scalar code written from the format definitions, in the order in which
// they read. Tests compare all tables with it. Slow on purpose; only row gathers (dequantize) run
// in the engine.
#pragma once

#include "kernels/kernels.h"

namespace sluice::kernels::reference {

// Values and bytes of one block in file layout; 1 value for F32, F16, BF16.
[[nodiscard]] int64_t block_values(Type type);
[[nodiscard]] size_t block_bytes(Type type);
// Bytes of a row of cols values; cols is a multiple of block_values.
[[nodiscard]] size_t row_bytes(Type type, int64_t cols);

[[nodiscard]] float f16_to_f32(f16 bits);
[[nodiscard]] f16 f32_to_f16(float x);  // rounds to nearest, ties to even

// Dequantizes n values (whole blocks) in file layout, at any alignment.
void dequantize(Type type, const void* src, int64_t n, float* out);
// The same without the types of SLUICE_DECODED_TYPE, for programs without their kernels.
void dequantize_common(Type type, const void* src, int64_t n, float* out);

// y[t * ldy + r] = sum over cols of W[r] . x[t], everything in double. W in file layout.
void matmul(Type type, const void* w, int64_t rows, int64_t cols, const float* x, int64_t ldx,
            int32_t n_tokens, double* y, int64_t ldy);

// int8 with one scale per 32 values: d = max|x| / 127, q = x / d rounded to nearest.
void quantize_q8(const float* x, int64_t cols, int8_t* q, float* d);

// --- vectors: the table's functions, in double ---------------------------------------------------
[[nodiscard]] double silu(double x);
[[nodiscard]] double gelu_tanh(double x);
[[nodiscard]] double gelu_erf(double x);
[[nodiscard]] double xielu(double x, const Xielu& by);
void rms_norm(const float* x, const float* weight, double eps, int64_t n, double* out);
void layer_norm(const float* x, const float* weight, const float* bias, double eps, int64_t n,
                double* out);
void rope(double* x, const float* cos, const float* sin, int32_t n_rot, bool neox);
void softmax(const float* x, int64_t n, double* out);

void l2_norm(const float* x, double scale, double eps, int64_t n, double* out);
[[nodiscard]] double softplus(double x);

// The recurrent layers' functions as their papers write them, in double. A state begins with
// args.before. Nothing is in place: x, after and out of the arguments are never written. Outputs
// [n_tokens][n] go to `out`, the last state to `after`.
void convolve(const ConvArgs& args, double* out);
void update_state(const StateArgs& args, double* after, double* out);
void scan(const ScanArgs& args, double* after, double* out);

// --- KV cache quantization: layouts in kernels.h -------------------------------------------------
// Hadamard transform of n values, as in Table::rotate, from its definition.
void rotate(const float* x, int32_t n, double* out);
// Value i of a row of n values: of any layout but the keys of kQ4_0 and kQ2 (kv_value), of position
// p in a group of kQ4_0 keys (kv_lane_value), or of kQ2 keys (kv_channel_value).
[[nodiscard]] double kv_value(KvType type, const void* row, int32_t i);
[[nodiscard]] double kv_lane_value(const void* group, int32_t n, int32_t p, int32_t i);
[[nodiscard]] double kv_channel_value(const void* group, int32_t n, int32_t p, int32_t i);
// The smallest squared error of 32 values in a block of this type, over fine steps of the scale.
// Not for kF16, which has no blocks.
[[nodiscard]] double min_kv_error(KvType type, const float* x);

// Naive attention; row i goes to out + i * dv. Ignores `partial_max`, `partial_sum`, `out` and
// `scratch` of the arguments.
void attention(const AttentionArgs& args, double* out);

}  // namespace sluice::kernels::reference

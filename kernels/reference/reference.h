// The oracle: plain scalar code written from the format definition, in the order in which the
// definition reads. Slow on purpose, except that row gathers (dequantize) use it too.
#pragma once

#include "kernels/kernels.h"

namespace sluice::kernels::reference {

// Values and bytes of one block of file layout; 1 value for F32, F16, BF16.
[[nodiscard]] int64_t block_values(Type type);
[[nodiscard]] size_t block_bytes(Type type);
// Bytes of a row of cols values; cols is a multiple of block_values.
[[nodiscard]] size_t row_bytes(Type type, int64_t cols);

[[nodiscard]] float f16_to_f32(f16 bits);
[[nodiscard]] f16 f32_to_f16(float x);  // to nearest, ties to even

// n values (whole blocks) of file layout, at any alignment.
void dequantize(Type type, const void* src, int64_t n, float* out);

// y[t * ldy + r] = sum over cols of W[r] . x[t], every product and sum in double. W in file layout.
void matmul(Type type, const void* w, int64_t rows, int64_t cols, const float* x, int64_t ldx,
            int32_t n_tokens, double* y, int64_t ldy);

// int8 with one scale per 32 values: d = max|x| / 127, q = x / d rounded to nearest.
void quantize_q8(const float* x, int64_t cols, int8_t* q, float* d);

// --- vectors: the table's functions, everything in double
// ------------------------------------------
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

// The recurrent layers' functions as their papers write them. States begin with args.before; every
// token's state is kept apart in double, so nothing is in place: x, after and out of the arguments
// are read or not looked at, and [n_tokens][n] goes to `out`, the last state to `after`.
void convolve(const ConvArgs& args, double* out);
void update_state(const StateArgs& args, double* after, double* out);
void scan(const ScanArgs& args, double* after, double* out);

// --- quantized keys and values: layouts in kernels.h ---------------------------------------------
// Hadamard's transform of n values as Table::rotate does it, by its definition.
void rotate(const float* x, int32_t n, double* out);
// Value i of a row of n values (not of the keys of kQ4_0 and kQ2), of position p of a group of such
// keys of kQ4_0, or by channel.
[[nodiscard]] double kv_value(KvType type, const void* row, int32_t i);
[[nodiscard]] double kv_lane_value(const void* group, int32_t n, int32_t p, int32_t i);
[[nodiscard]] double kv_channel_value(const void* group, int32_t n, int32_t p, int32_t i);
// The least squared error that 32 values can have in a block of this type, over fine steps of the
// scale; kF16 is not a block.
[[nodiscard]] double min_kv_error(KvType type, const float* x);

// Naive attention, row i to out + i * dv; `partial_max`, `partial_sum`, `out` and `scratch` of the
// arguments are not looked at.
void attention(const AttentionArgs& args, double* out);

}  // namespace sluice::kernels::reference

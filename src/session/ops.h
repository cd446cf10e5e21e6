// The operations of a forward pass, one function each, over the current rows of a batch. Small ones
// run on the calling thread, others on the thread pool. Those that need weights and can block are
// CpuExecutor's (weight_ops.cpp); attention has a header of its own.
#pragma once

#include "session/cpu_batch.h"

namespace sluice::session {

// Functions whose name begins with op_ run one operation of that kind.
void op_norm(CpuBatch& cx, const model::Op& op);
void op_rope(CpuBatch& cx, const model::Op& op);
void op_activate(CpuBatch& cx, const model::Op& op);
void op_gate(CpuBatch& cx, const model::Op& op);
void op_elementwise(CpuBatch& cx, const model::Op& op);
void op_select(CpuBatch& cx);  // leaves no rows if the batch ends here
void op_pool(CpuBatch& cx, const model::Op& op);
void op_vectors(CpuBatch& cx, const model::Op& op);
void op_temperature(CpuBatch& cx, const model::Op& op);
// Recurrent layers.
void op_convolve(CpuBatch& cx, const model::Op& op);
void op_state(CpuBatch& cx, const model::Op& op);
void op_scan(CpuBatch& cx, const model::Op& op);
void op_shift(CpuBatch& cx, const model::Op& op);
void op_unary(CpuBatch& cx, const model::Op& op);
void op_gated(CpuBatch& cx, const model::Op& op);
void op_decay(CpuBatch& cx, const model::Op& op);
void op_lerp(CpuBatch& cx, const model::Op& op);
void op_rwkv7_keys(CpuBatch& cx, const model::Op& op);
void op_rwkv7_mix(CpuBatch& cx, const model::Op& op);
void op_rwkv7_bonus(CpuBatch& cx, const model::Op& op);

// Tables of cosines and sines for the batch's positions.
void fill_rope_tables(CpuBatch& cx);
// Rows of one for the sequence's tokens from index `first` on, at their RoPE positions. `back`: as
// in fill_rope_table().
void fill_rope_rows(CpuBatch& cx, size_t rope, int32_t first, int32_t n, float* out,
                    bool back = false);
// A RoPE variant's factors for this context; null: none.
[[nodiscard]] const float* rope_factors(CpuBatch& cx, size_t rope);
// Activates n values at `gate` in place. Gated kinds multiply by the n values after them.
void activate(CpuBatch& cx, model::Activation act, float* gate, int64_t n,
              const kernels::Xielu* xielu = nullptr);
void quantize(CpuBatch& cx, const float* x, int64_t ld, int64_t cols, int32_t n_tokens,
              uint8_t* out);
// Whether a matrix multiplies quantized activations.
[[nodiscard]] bool wants_q8(CpuBatch& cx, int32_t mat);

}  // namespace sluice::session

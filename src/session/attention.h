// Attention over the KV cache, and what stores new keys and values there.
#pragma once

#include "session/cpu_batch.h"

namespace sluice::session {

// ALiBi's slope: subtracted from a head's scores per position between key and query.
[[nodiscard]] float alibi_slope(const model::AttentionOp& op, int32_t head);

// Attention arguments of one KV head, over all of its positions.
[[nodiscard]] kernels::AttentionArgs base_args(const kv::KvCache& cache,
                                               const model::AttentionOp& op, int32_t head);

// Rotates a key or query into the space in which keys are stored, if they are stored rotated;
// applying it twice restores it.
void rotate_key(CpuBatch& cx, const model::AttentionShape& att, float* x);

// Stores the rows' keys and values.
void store_kv(CpuBatch& cx, int32_t layer, const model::AttentionShape& att);
// Prepares the cache for an attention of the current lane: rotates, evicts, stores.
void fill_cache(CpuBatch& cx, int32_t layer, const model::AttentionOp& op);
void op_attention(CpuBatch& cx, int32_t layer, const model::AttentionOp& op);
void op_cross(CpuBatch& cx, const model::CrossOp& op);

}  // namespace sluice::session

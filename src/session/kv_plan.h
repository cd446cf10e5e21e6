// KV cache capacity of a plan, and what a cache that evicts keeps: sizes and errors of a KV policy
// (kv/kv_policy.h) for one model.
#pragma once

#include <cstdint>

#include "kv/kv_cache.h"
#include "kv/kv_policy.h"
#include "kv/kv_type.h"
#include "model/program.h"

namespace sluice::session {

struct KvPlan {
  int32_t positions = 0;          // slots of a layer with full attention
  int32_t sinks = 0, window = 0;  // first and last positions that a query sees; window 0: all
  int32_t slots = 0;              // heavy-hitter: slots, of `positions`, for kept positions; else 0
  kv::Eviction eviction{};        // heavy-hitter: the ring that holds the other positions
  int32_t min_batch = 1;          // EngineOptions::min_batch, which the rings have room for
  [[nodiscard]] bool evicts() const { return window > 0; }
  // Whether a layer evicts. Layers whose own window is shorter do not.
  [[nodiscard]] bool evicts(const model::AttentionOp& attention) const {
    return evicts() && (attention.window == 0 || attention.window > sinks + window);
  }
};

// Plans a cache of `positions` of these types; policy.capacity, if set, overrides `positions`.
// `min_batch`: tokens of the largest batch that must not be split. Errors: kInvalidArgument for
// sizes out of range, and for models that cannot evict, saying why.
[[nodiscard]] Result<KvPlan> plan_room(const model::Program& program, const kv::KvPolicy& policy,
                                       const kv::KvTypes& types, int32_t positions,
                                       int32_t min_batch);

// The smallest cache that can evict; 0 if the policy does not.
[[nodiscard]] int32_t min_positions(const kv::KvPolicy& policy, const kv::KvTypes& types,
                                    int32_t min_batch);

// The smallest cache under the window policy in which the tokens of a batch of `n` can all see each
// other: its last token's window reaches its first, and the ring has room for all of them behind
// the window of the first.
[[nodiscard]] int64_t min_window_positions(int32_t sinks, int64_t n);

// Whether an input is always one batch (encoders and encoder-decoders). In several batches each
// layer's weights would be read again for every batch, and all rows kept between layers anyway. So
// activations grow with the context.
[[nodiscard]] bool single_batch(const model::Program& program);

// Largest batch, if pictures need no larger one: a ring that evicts has room for so many more
// positions than its first query sees; one that evicts blocks ends a batch at each block.
[[nodiscard]] int32_t max_batch(const KvPlan& room);

// Errors: kInvalidArgument for KV cache types that the model does not support, naming them.
[[nodiscard]] Status check_kv_types(const model::Program& program, const kv::KvTypes& types,
                                    const KvPlan& room);

// What each layer stores, from the operations that store it.
[[nodiscard]] kv::KvShape kv_shape(const model::Program& program, int32_t n_ctx, const KvPlan& room,
                                   const kv::KvTypes& types);

inline constexpr int32_t kMinCheckpoints = 2;
// Number of checkpoints of recurrent states: one every kCheckpointEvery positions, or fewer if they
// would exceed a sixteenth of the budget.
[[nodiscard]] int32_t choose_checkpoints(const kv::KvShape& shape, uint64_t budget);

// Context length, in tokens, of a sequence whose cache of `positions` evicts: more than any
// conversation reaches, while the token ids take little of the budget.
[[nodiscard]] int32_t endless_text(uint64_t budget, int32_t n_sessions, int32_t positions);

}  // namespace sluice::session

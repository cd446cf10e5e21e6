// What each part of a memory plan takes, in bytes, given its lengths and counts. These functions
// decide nothing; planner.h does.
#pragma once

#include <cstdint>

#include "session/memory_plan.h"

namespace sluice::session {

// Bytes of the program beyond the allowance for a small one in base_bytes: deep models have
// thousands of operations.
[[nodiscard]] uint64_t program_bytes(const model::Program& program);

// Of the records of a plan's units.
[[nodiscard]] uint64_t units_bytes(const residency::Plan& weights);

// Sets all of MemoryPlan::Bytes that follow from the plan's lengths and counts.
void size_parts(const model::Program& program, const kernels::Table& table, bool structured_output,
                MemoryPlan& plan);

// Embedding row caches of the tables read by rows, in a sixty-fourth of the budget together.
void set_cached_rows(const model::Program& program, MemoryPlan& plan);

// Bytes that grow with the context: the KV cache, and all activations if an input is one batch.
// Recurrent states do not depend on it, so a shorter context would not make them smaller.
[[nodiscard]] uint64_t context_bytes(const model::Program& program, const kernels::Table& table,
                                     const kv::KvTypes& types, int64_t positions);

// Bytes of all sequences' KV caches and states in this plan, if they had these types; 0 if the
// model does not support them.
[[nodiscard]] uint64_t kv_bytes(const model::Program& program, const MemoryPlan& plan,
                                const kv::KvTypes& types);

}  // namespace sluice::session

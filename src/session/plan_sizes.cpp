// Bytes of each part of the plan.
#include "session/plan_sizes.h"

#include <algorithm>

#include "base/round_up.h"
#include "draft/ngram.h"
#include "grammar/matcher.h"
#include "session/nextn.h"

namespace sluice::session {
namespace {

using model::Program;

constexpr uint64_t kBaseBytes = 192 << 10;   // queue, directory, program, allocator overhead
constexpr uint64_t kUnitBytes = 192;         // a unit's entries in the plan and in the residency
constexpr uint64_t kThreadBytes = 66 << 10;  // stack pages that a worker touches, and its record

uint64_t vector_bytes(const Program& p) {
  uint64_t bytes = 0;
  for (const model::Vec& v : p.vecs) {
    bytes += round_up_to_line(static_cast<size_t>(v.n) * sizeof(float));
  }
  return bytes;
}

// State of generations outside the pass: the sampler's candidates, tokens of sequences and prompts,
// pending text.
uint64_t request_bytes(const Program& p, const MemoryPlan& plan) {
  constexpr uint64_t kCandidateBytes = 8, kPieces = 32 << 10;
  const uint64_t tokens = static_cast<uint64_t>(plan.context.n_ctx) * sizeof(int32_t);
  const uint64_t index =
      plan.batch.draft_max > 0 ? draft::NgramIndex::memory_bytes(plan.context.n_ctx) : 0;
  const uint64_t each =
      2 * tokens + index + static_cast<uint64_t>(p.hp.n_vocab) * kCandidateBytes + kPieces;
  return static_cast<uint64_t>(plan.sessions.n_sessions) * tokens +
         static_cast<uint64_t>(plan.sessions.parallel) * each;
}

}  // namespace

uint64_t program_bytes(const Program& p) {
  constexpr uint64_t kAllowed = 96 << 10, kName = 32;
  const uint64_t bytes = p.ops.size() * sizeof(model::Op) + p.marks.size() * sizeof(model::Mark) +
                         p.mats.size() * (sizeof(model::Mat) + kName) +
                         p.vecs.size() * (sizeof(model::Vec) + kName);
  return (bytes > kAllowed ? bytes - kAllowed : 0) + p.approximated.bytes;
}

uint64_t units_bytes(const residency::Plan& weights) {
  return weights.units.size() * kUnitBytes;
}

void size_parts(const Program& p, const kernels::Table& table, bool structured_output,
                MemoryPlan& plan) {
  plan.bytes.kv = static_cast<uint64_t>(plan.sessions.n_sessions) * plan.kv.shape.bytes();
  plan.bytes.small_tensors = vector_bytes(p);
  const ComputeBuffer::Sizes sizes = ComputeBuffer::measure(p, table, plan.working());
  plan.bytes.activations = sizes.activations;
  const uint64_t threads = static_cast<uint64_t>(plan.threads.n_threads);
  plan.bytes.scratch = threads * sizes.scratch;
  plan.bytes.generation = request_bytes(p, plan);
  if (structured_output) {
    plan.bytes.grammar =
        grammar::Vocabulary::memory_bytes(static_cast<uint64_t>(p.hp.n_vocab),
                                          plan.bytes.tokenizer) +
        static_cast<uint64_t>(plan.sessions.parallel) *
            (grammar::Matcher::memory_bytes(p.hp.n_vocab) + grammar::compile_memory());
  }
  if constexpr (model::kNextn) {
    if (p.nextn.on()) plan.bytes.nextn = nextn_bytes(p, plan.context.n_ctx);
  }
  uint64_t directory = 0;
  for (const model::Mat& m : p.mats) {
    directory += sizeof(model::Mat) + m.name.capacity();
  }
  plan.bytes.other = plan.budget.base + kBaseBytes + directory +
                     static_cast<uint64_t>(plan.threads.own) * kThreadBytes;
}

void set_cached_rows(const Program& p, MemoryPlan& plan) {
  const bool held =
      p.embedding == p.head ? plan.weights.streamed_bytes == 0 : plan.weights.embedding_resident;
  for (size_t i = held ? 1 : 0; i < p.tables.size(); ++i) {
    const model::Mat& m = p.mats[static_cast<size_t>(p.tables[i])];
    const uint64_t all = static_cast<uint64_t>(m.rows) + EmbeddingRowCache::kWays - 1;
    const uint64_t room = plan.budget.bytes / 64 / p.tables.size();
    const uint64_t n = room / EmbeddingRowCache::bytes(1, static_cast<uint64_t>(m.row_bytes));
    plan.buffers.cached_rows[i] =
        std::min(n, all) / EmbeddingRowCache::kWays * EmbeddingRowCache::kWays;
  }
}

uint64_t context_bytes(const Program& p, const kernels::Table& table, const kv::KvTypes& types,
                       int64_t positions) {
  const int32_t n_ctx = static_cast<int32_t>(positions);
  const kv::KvShape shape = kv_shape(p, n_ctx, {n_ctx}, types);
  const uint64_t kv = shape.bytes() - std::min(shape.bytes(), 2 * shape.state_bytes());
  if (!single_batch(p)) return kv;
  return kv + ComputeBuffer::measure(p, table, {n_ctx, n_ctx, 1, 1}).activations;
}

uint64_t kv_bytes(const Program& program, const MemoryPlan& plan, const kv::KvTypes& types) {
  if (!check_kv_types(program, types, plan.kv.layout).ok()) return 0;
  kv::KvShape shape = kv_shape(program, plan.context.n_ctx, plan.kv.layout, types);
  shape.n_checkpoints = plan.kv.shape.n_checkpoints;
  return static_cast<uint64_t>(plan.sessions.n_sessions) * shape.bytes();
}

}  // namespace sluice::session

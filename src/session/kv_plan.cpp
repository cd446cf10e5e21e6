// Sizes the KV cache, and finds out which models cannot evict.
#include "session/kv_plan.h"

#include <algorithm>

#include "session/compute_buffer.h"

namespace sluice::session {
namespace {

using model::AttentionOp;
using model::Op;

// Whether queries (or also keys) cannot be rotated again, because the operation after RoPE weighs
// the values of a head differently.
bool uneven_after_rope(const model::Program& p, const Op& attention, bool keys) {
  const auto& own = attention.as<AttentionOp>();
  if (own.rope < 0) return false;
  for (const Op* op = &attention - 1; op >= p.ops.data() && !op->is<model::RopeOp>(); --op) {
    const auto* norm = op->get<model::NormOp>();
    const bool weighs = (norm != nullptr && norm->weight >= 0) || op->is<model::MulVecOp>();
    const int32_t end = keys ? own.att.values() : own.att.keys();
    if (weighs && op->out == model::Buf::kQkv && op->out_col < end) return true;
  }
  return false;
}

// Why the model cannot evict; null: it can.
const char* obstacle(const model::Program& p, const KvPlan& room) {
  if (!p.hp.causal || p.decoder > 0) return "this model is not autoregressive";
  if (p.max_context < model::kMaxContext) return "this model has learned position embeddings";
  for (const Op& op : p.ops) {
    if (op.is<model::TemperatureOp>()) return "this model scales queries by position";
    const auto* attention = op.get<AttentionOp>();
    if (attention == nullptr || !room.evicts(*attention)) continue;
    if (attention->chunked) return "this model's attention chunks are longer than the cache";
    if ((room.sinks > 0 || room.slots > 0) && uneven_after_rope(p, op, room.slots > 0)) {
      return "this model weighs queries after RoPE";
    }
    if (room.slots > 0 && attention->alibi != 0) {
      return "this model uses ALiBi";
    }
  }
  return nullptr;
}

// Grouped types evict whole groups.
int32_t min_block(const kv::KvTypes& types) {
  return kernels::kv_grouped(types.k) || kernels::kv_grouped(types.v) ? kernels::kKvGroup : 32;
}

// Three quarters of the positions are the ring of recent ones; the rest are slots for heavy
// hitters. Both are whole blocks and, if attention is split into parts, whole parts. Blocks have at
// least `min_block` positions.
void share_places(int32_t min_block, KvPlan& room) {
  int32_t block = min_block;
  while (block < 256 && block * 16 <= room.positions) block *= 2;
  const int32_t split = attention_split(room.positions);
  const int32_t unit = room.positions <= split ? block : split;
  room.eviction = {std::max(1, room.positions / 4 * 3 / unit) * unit, block};
  room.slots = room.positions - room.eviction.ring;
}

}  // namespace

Result<KvPlan> plan_room(const model::Program& program, const kv::KvPolicy& policy,
                         const kv::KvTypes& types, int32_t positions) {
  KvPlan room;
  room.positions = positions;
  if (!policy.evicts()) return room;
  const int64_t wanted = policy.capacity > 0 ? policy.capacity : positions;
  const int32_t min = min_positions(policy, types);
  if (wanted < min || wanted > model::kMaxContext) {
    return error(Code::kInvalidArgument,
                 "a KV cache of %lld positions cannot evict: use %d to %lld",
                 static_cast<long long>(wanted), min, static_cast<long long>(model::kMaxContext));
  }
  // Round up to whole parts of attention, or to whole groups if there is one part.
  const int64_t split = attention_split(static_cast<int32_t>(wanted));
  const int64_t unit = wanted <= split ? kernels::kKvGroup : split;
  room.positions = static_cast<int32_t>((wanted + unit - 1) / unit * unit);
  if (policy.heavy_hitter) share_places(min_block(types), room);
  const int32_t seen =
      room.slots > 0 ? room.slots : room.positions - kv::KvPolicy::spare(room.positions);
  if (policy.sinks < 0 || policy.sinks > seen / 2) {
    return error(Code::kInvalidArgument,
                 "%d KV sinks do not fit: a cache of %d positions can have 0 to %d", policy.sinks,
                 room.positions, seen / 2);
  }
  room.sinks = policy.sinks;
  room.window = room.slots > 0 ? room.eviction.ring - room.eviction.block : seen - policy.sinks;
  if (const char* why = obstacle(program, room)) {
    return error(Code::kInvalidArgument, "the KV policy %s is not supported here: %s",
                 policy.heavy_hitter ? "heavy-hitter" : "window", why);
  }
  return room;
}

int32_t min_positions(const kv::KvPolicy& policy, const kv::KvTypes& types) {
  if (!policy.evicts()) return 0;
  // The ring needs two blocks, and the slots at least one.
  return std::max(policy.heavy_hitter ? 3 * min_block(types) : 0, kv::kMinPositions);
}

int32_t endless_text(uint64_t budget, int32_t n_sessions, int32_t positions) {
  constexpr uint64_t kMin = 1 << 15, kMax = 1 << 20;
  const uint64_t each = sizeof(int32_t) * (static_cast<uint64_t>(n_sessions) + 2);
  const uint64_t tokens = budget == 0 ? kMax : std::clamp(budget / 64 / each, kMin, kMax);
  return std::max(static_cast<int32_t>(tokens),
                  std::min(positions, static_cast<int32_t>(model::kMaxContext) - 1) + 1);
}

}  // namespace sluice::session

// Sizes, and which models cannot forget.
#include "session/kv_plan.h"

#include <algorithm>

#include "session/compute_buffer.h"

namespace sluice::session {
namespace {

using model::AttentionOp;
using model::Op;

// Whether a query, or also a key, cannot be turned once more: what comes behind the rotation is not
// the same for all values of a head.
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

// Why the model cannot forget; null: it can.
const char* obstacle(const model::Program& p, const KvPlan& room) {
  if (!p.hp.causal || p.decoder > 0) return "this model reads texts whole";
  if (p.max_context < model::kMaxContext) return "this model has learned its positions one by one";
  for (const Op& op : p.ops) {
    if (op.is<model::TemperatureOp>()) return "this model's queries grow with their position";
    const auto* attention = op.get<AttentionOp>();
    if (attention == nullptr || !room.evicts(*attention)) continue;
    if (attention->chunked) return "this model sees texts in pieces that are longer than the cache";
    if ((room.sinks > 0 || room.slots > 0) && uneven_after_rope(p, op, room.slots > 0)) {
      return "this model's queries are weighed after their rotation";
    }
    if (room.slots > 0 && attention->alibi != 0) {
      return "this model weighs by distance";
    }
  }
  return nullptr;
}

// Three quarters of the positions are a ring of the last ones, the others for those that are
// picked: both are whole blocks, and where attention is cut into parts, whole parts. Blocks are no
// shorter than `least`.
void share_places(int32_t least, KvPlan& room) {
  int32_t block = least;
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
  // Of types in groups whole groups leave; two blocks are a ring, and as many places as in one
  // there must be besides.
  const bool grouped = kernels::kv_grouped(types.k) || kernels::kv_grouped(types.v);
  const int32_t min_block = grouped ? kernels::kKvGroup : 32;
  const int32_t least = policy.heavy_hitter && grouped ? 3 * min_block : kv::kMinPositions;
  if (wanted < least || wanted > model::kMaxContext) {
    return error(Code::kInvalidArgument,
                 "a cache of %lld positions cannot forget: it has %d to %lld of them",
                 static_cast<long long>(wanted), least, static_cast<long long>(model::kMaxContext));
  }
  // Whole parts of attention, or whole groups where there is one part.
  const int64_t split = attention_split(static_cast<int32_t>(wanted));
  const int64_t unit = wanted <= split ? kernels::kKvGroup : split;
  room.positions = static_cast<int32_t>((wanted + unit - 1) / unit * unit);
  if (policy.heavy_hitter) share_places(min_block, room);
  const int32_t seen =
      room.slots > 0 ? room.slots : room.positions - kv::KvPolicy::spare(room.positions);
  if (policy.sinks < 0 || policy.sinks > seen / 2) {
    return error(Code::kInvalidArgument,
                 "%d first positions cannot be kept: a cache of %d has room for 0 to %d",
                 policy.sinks, room.positions, seen / 2);
  }
  room.sinks = policy.sinks;
  room.window = room.slots > 0 ? room.eviction.ring - room.eviction.block : seen - policy.sinks;
  if (const char* why = obstacle(program, room)) {
    return error(Code::kInvalidArgument, "the KV policy %s is not possible here: %s",
                 policy.heavy_hitter ? "heavy-hitter" : "window", why);
  }
  return room;
}

int32_t endless_text(uint64_t budget, int32_t n_sessions) {
  constexpr uint64_t kMin = 1 << 15, kMax = 1 << 20;
  if (budget == 0) return kMax;
  const uint64_t each = sizeof(int32_t) * (static_cast<uint64_t>(n_sessions) + 2);
  return static_cast<int32_t>(std::clamp(budget / 64 / each, kMin, kMax));
}

}  // namespace sluice::session

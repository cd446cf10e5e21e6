// Sizes the KV cache of each layer, and finds out which models cannot evict.
#include "session/kv_plan.h"

#include <algorithm>

#include "session/compute_buffer.h"
#include "session/engine_options.h"

namespace sluice::session {
namespace {

using model::AttentionOp;
using model::Op;
using model::Program;

constexpr int32_t kObservers = 8;  // observer queries per block, see kv_heavy_hitter.cpp

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
  if (!p.hp.attention.causal || p.decoder > 0) return "this model is not autoregressive";
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

int32_t longest_batch(const KvPlan& room) {
  return std::max(kMaxBatch, room.min_batch);
}

// A ring is as many whole parts of attention as hold the window, the longest batch, and as many
// positions again for rewinding. No part of the positions then wraps around the ring's end.
int32_t ring_capacity(int32_t window, const KvPlan& room) {
  const int32_t split = attention_split(room.positions);
  const int64_t wanted = static_cast<int64_t>(window) + 2 * int64_t{longest_batch(room)};
  return static_cast<int32_t>(
      std::min<int64_t>(room.positions, (wanted + split - 1) / split * split));
}

// Positions of the f16 ring: the group in which a batch begins, plus the longest batch.
int32_t recent_capacity(const KvPlan& room) {
  constexpr int32_t kGroup = kernels::kKvGroup;
  const int32_t groups = (longest_batch(room) + 2 * (kGroup - 1)) / kGroup;
  return std::min((room.positions + kGroup - 1) / kGroup, groups) * kGroup;
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

bool single_batch(const Program& p) {
  return !p.hp.attention.causal || p.decoder > 0;
}

Status check_kv_types(const Program& p, const kv::KvTypes& types, const KvPlan& room) {
  if (types.f16()) return {};
  const auto refuse = [&types](const char* why) {
    return error(Code::kInvalidArgument, "the KV cache type %s is not supported here: %s",
                 kv::kv_types_name(types).c_str(), why);
  };
  if (single_batch(p)) return refuse("this model is not autoregressive and uses f16");
  if (room.slots > 0 && types.k == kv::KvType::kQ2) {
    return refuse("the KV policy heavy-hitter keeps single keys, but q2 stores groups");
  }
  for (const model::Op& op : p.ops) {
    const auto* attention = op.get<model::AttentionOp>();
    if (attention == nullptr || !attention->att.values_in_keys) continue;
    if (types.k != types.v)
      return refuse("keys and values share memory, so their types must be equal");
    if (types.k == kv::KvType::kQ2)
      return refuse("keys and values share memory, but q2 stores them differently");
  }
  return {};
}

kv::KvShape kv_shape(const Program& p, int32_t n_ctx, const KvPlan& room,
                     const kv::KvTypes& types) {
  kv::KvShape shape;
  shape.n_ctx = n_ctx;
  shape.bidirectional = !p.hp.attention.causal;
  shape.answers = p.decoder > 0;
  shape.eviction = room.eviction;
  shape.layers.resize(static_cast<size_t>(p.hp.n_layer));
  for (const model::Op& op : p.ops) {
    if (op.layer < 0 || op.layer == p.nextn.layer) continue;
    kv::LayerShape& layer = shape.layers[static_cast<size_t>(op.layer)];
    const auto* own = op.get<model::AttentionOp>();
    if (own != nullptr && !own->att.causal) {
      kv::LayerShape& shared = shape.layers[static_cast<size_t>(own->att.cache)];
      shared.heads = std::max(shared.heads, own->att.kv_heads);
      shared.dk = std::max(shared.dk, own->att.dk);
      shared.dv = std::max(shared.dv, own->att.dv);
      shared.capacity = n_ctx;
    } else if (own != nullptr && own->att.cache == op.layer) {
      layer.heads = own->att.kv_heads;
      layer.dk = own->att.dk;
      layer.dv = own->att.dv;
      layer.values_in_keys = own->att.values_in_keys;
      layer.window = own->window;
      layer.capacity = own->window > 0 ? ring_capacity(own->window, room) : room.positions;
      if (room.evicts(*own)) {
        layer.evicts = true;
        layer.window = room.window;
        layer.sinks = room.sinks;
        layer.capacity = room.positions - room.slots;
        layer.slots = room.slots;
        layer.eviction = room.eviction;
        layer.observers = room.slots > 0 ? kObservers : 0;
        layer.group = own->att.group();
      }
      layer.k_type = types.k;
      layer.v_type = types.v;
      if (kernels::kv_grouped(types.k) || kernels::kv_grouped(types.v)) {
        layer.recent = recent_capacity(room);
      }
    }
    if (const model::Carried* c = op.carried()) {
      layer.state = std::max(layer.state, c->at + c->size);
    }
  }
  return shape;
}

int32_t choose_checkpoints(const kv::KvShape& shape, uint64_t budget) {
  constexpr uint64_t kUnlimited = 64 << 20;
  if (!shape.recurrent()) return 0;
  const int64_t all = (shape.n_ctx + kCheckpointEvery - 1) / kCheckpointEvery;
  const uint64_t room = budget == 0 ? kUnlimited : budget / 16;
  const uint64_t n =
      std::clamp<uint64_t>(room / shape.state_bytes(), kMinCheckpoints, kMaxCheckpoints);
  return static_cast<int32_t>(std::min(static_cast<int64_t>(n), all));
}

int32_t max_batch(const KvPlan& room) {
  if (room.slots > 0) return room.eviction.block;
  return room.evicts() ? room.positions - room.sinks - room.window : kMaxBatch;
}

Result<KvPlan> plan_room(const model::Program& program, const kv::KvPolicy& policy,
                         const kv::KvTypes& types, int32_t positions, int32_t min_batch) {
  KvPlan room;
  room.positions = positions;
  room.min_batch = min_batch;
  if (!policy.evicts()) return room;
  const int64_t wanted = policy.capacity > 0 ? policy.capacity : positions;
  const int32_t min = min_positions(policy, types, min_batch);
  if (wanted < min || wanted > model::kMaxContext) {
    const std::string pictures =
        min > min_positions(policy, types, 1)
            ? " with pictures of " + std::to_string(min_batch) + " tokens that see each other"
            : "";
    return error(Code::kInvalidArgument,
                 "a KV cache of %lld positions cannot evict%s: use %d to %lld",
                 static_cast<long long>(wanted), pictures.c_str(), min,
                 static_cast<long long>(model::kMaxContext));
  }
  // Round up to whole parts of attention, or to whole groups if there is one part.
  const int64_t split = attention_split(static_cast<int32_t>(wanted));
  const int64_t unit = wanted <= split ? kernels::kKvGroup : split;
  room.positions = static_cast<int32_t>((wanted + unit - 1) / unit * unit);
  if (policy.heavy_hitter) share_places(min_block(types), room);
  const int32_t spare = std::max(kv::KvPolicy::spare(room.positions), min_batch);
  const int32_t seen = room.slots > 0 ? room.slots : room.positions - spare;
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

int32_t min_positions(const kv::KvPolicy& policy, const kv::KvTypes& types, int32_t min_batch) {
  if (!policy.evicts()) return 0;
  // The ring needs two blocks, and the slots at least one.
  if (policy.heavy_hitter) return std::max(3 * min_block(types), kv::kMinPositions);
  const int64_t whole = min_batch > 1 ? min_window_positions(policy.sinks, min_batch) : 0;
  return static_cast<int32_t>(std::clamp<int64_t>(whole, kv::kMinPositions, model::kMaxContext));
}

int64_t min_window_positions(int32_t sinks, int64_t n) {
  return sinks + 2 * n;
}

int32_t endless_text(uint64_t budget, int32_t n_sessions, int32_t positions) {
  constexpr uint64_t kMin = 1 << 15, kMax = 1 << 20;
  const uint64_t each = sizeof(int32_t) * (static_cast<uint64_t>(n_sessions) + 2);
  const uint64_t tokens = budget == 0 ? kMax : std::clamp(budget / 64 / each, kMin, kMax);
  return std::max(static_cast<int32_t>(tokens),
                  std::min(positions, static_cast<int32_t>(model::kMaxContext) - 1) + 1);
}

}  // namespace sluice::session

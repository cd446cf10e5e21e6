// Computes the memory plan.
#include "session/memory_plan.h"

#include <algorithm>
#include <array>

#include "base/round_up.h"
#include "base/thread_pool.h"
#include "draft/ngram.h"
#include "draft/policy.h"
#include "grammar/matcher.h"
#include "session/engine.h"
#include "session/nextn.h"

namespace sluice::session {
namespace {

using model::Buf;
using model::kBufCount;
using model::Program;

constexpr int32_t kMinCheckpoints = 2;
constexpr int32_t kMinDraft = 3;
constexpr int32_t kObservers = 8;            // observer queries per block, see kv_heavy_hitter.cpp
constexpr uint64_t kBaseBytes = 192 << 10;   // queue, directory, program, allocator overhead
constexpr uint64_t kUnitBytes = 192;         // a unit's entries in the plan and in the residency
constexpr uint64_t kThreadBytes = 66 << 10;  // stack pages that a worker touches, and its record

// Every tensor once, in the order in which a forward pass first uses it.
class Ordering {
 public:
  Ordering(const Program& p, const kernels::Table& table, std::vector<residency::MatrixSpec>& specs,
           std::vector<int32_t>& mat_item, std::vector<int32_t>& vec_item)
      : specs(specs), mat_item(mat_item), vec_item(vec_item), p_(p), table_(table) {
    mat_item.assign(p.mats.size(), -1);
    vec_item.assign(p.vecs.size(), -1);
    for (const model::Rope& r : p.ropes) {
      vec(r.factors_short);
      vec(r.factors_long);
    }
    for (const model::Op& op : p.ops) {
      for (const int32_t v : op.vecs()) vec(v);
      if (const auto* heads = op.get<model::HeadMatmulOp>()) {
        for (const int32_t m : p.by_head[static_cast<size_t>(heads->by_head)]) mat(m);
      } else if (const auto* product = op.get<model::MatmulOp>()) {
        for (const model::MatPart& part : product->parts()) {
          vec(part.bias);
          vec(part.factor);
          mat(part.mat);
        }
      } else if (const auto* mixture = op.get<model::MoeOp>()) {
        experts(p.moes[static_cast<size_t>(mixture->moe)]);
      }
    }
    if (p.embedding >= 0) mat(p.embedding);
  }

  std::vector<residency::MatrixSpec>& specs;
  std::vector<int32_t>&mat_item, &vec_item;

 private:
  void experts(const model::Moe& moe) {
    for (const int32_t v : moe.vecs()) vec(v);
    for (size_t e = 0; e < moe.up.size(); ++e) {
      if (!moe.gate.empty()) mat(moe.gate[e]);
      mat(moe.up[e]);
      mat(moe.down[e]);
    }
  }

  void vec(int32_t index) {
    if (index < 0 || vec_item[static_cast<size_t>(index)] >= 0) return;
    const model::Vec& v = p_.vecs[static_cast<size_t>(index)];
    residency::MatrixSpec s;
    s.kind = residency::MatrixKind::kVector;
    s.file = v.file;
    s.offset = v.offset;
    s.rows = 1;
    s.row_bytes = static_cast<int64_t>(v.bytes);
    s.packed_group_bytes = v.n * static_cast<int64_t>(sizeof(float));
    vec_item[static_cast<size_t>(index)] = static_cast<int32_t>(specs.size());
    specs.push_back(s);
  }

  void mat(int32_t index) {
    if (index < 0 || mat_item[static_cast<size_t>(index)] >= 0) return;
    const model::Mat& m = p_.mats[static_cast<size_t>(index)];
    residency::MatrixSpec s;
    s.kind = index == p_.embedding && p_.embedding != p_.head ? residency::MatrixKind::kEmbedding
             : m.expert                                       ? residency::MatrixKind::kExpert
                                                              : residency::MatrixKind::kDense;
    s.file = m.file;
    s.offset = m.offset;
    s.rows = m.rows;
    s.row_bytes = m.row_bytes;
    s.packed_group_bytes = static_cast<int64_t>(table_.packed_group_bytes(m.type, m.cols));
    s.plain = m.plain;
    mat_item[static_cast<size_t>(index)] = static_cast<int32_t>(specs.size());
    specs.push_back(s);
  }

  const Program& p_;
  const kernels::Table& table_;
};

// A ring is as many whole parts of attention as hold the window, the longest batch, and as many
// positions again for rewinding. No part of the positions then wraps around the ring's end.
int32_t ring_capacity(int32_t window, int32_t positions) {
  const int32_t split = attention_split(positions);
  const int64_t wanted = static_cast<int64_t>(window) + 2 * kMaxBatch;
  return static_cast<int32_t>(std::min<int64_t>(positions, (wanted + split - 1) / split * split));
}

// Positions of the f16 ring: the group in which a batch begins, plus the longest batch.
int32_t recent_capacity(int32_t positions) {
  constexpr int32_t kGroup = kernels::kKvGroup;
  return std::min((positions + kGroup - 1) / kGroup, kMaxBatch / kGroup + 1) * kGroup;
}

// Whether an input is always one batch (encoders and encoder-decoders). In several batches each
// layer's weights would be read again for every batch, and all rows kept between layers anyway. So
// activations grow with the context.
bool single_batch(const Program& p) {
  return !p.hp.causal || p.decoder > 0;
}

// Whether the model supports these KV cache types.
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

// What each layer stores, from the operations that store it.
kv::KvShape kv_shape(const Program& p, int32_t n_ctx, const KvPlan& room,
                     const kv::KvTypes& types) {
  kv::KvShape shape;
  shape.n_ctx = n_ctx;
  shape.bidirectional = !p.hp.causal;
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
      layer.capacity =
          own->window > 0 ? ring_capacity(own->window, room.positions) : room.positions;
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
        layer.recent = recent_capacity(room.positions);
      }
    }
    if (const model::Carried* c = op.carried()) {
      layer.state = std::max(layer.state, c->at + c->size);
    }
  }
  return shape;
}

// Number of checkpoints of recurrent states: one every kCheckpointEvery positions, or fewer if they
// would exceed a sixteenth of the budget.
int32_t choose_checkpoints(const kv::KvShape& shape, uint64_t budget) {
  constexpr uint64_t kUnlimited = 64 << 20;
  if (!shape.recurrent()) return 0;
  const int64_t all = (shape.n_ctx + kCheckpointEvery - 1) / kCheckpointEvery;
  const uint64_t room = budget == 0 ? kUnlimited : budget / 16;
  const uint64_t n =
      std::clamp<uint64_t>(room / shape.state_bytes(), kMinCheckpoints, kMaxCheckpoints);
  return static_cast<int32_t>(std::min(static_cast<int64_t>(n), all));
}

// Bytes of the program beyond the allowance for a small one in base_bytes: deep models have
// thousands of operations.
uint64_t program_bytes(const Program& p) {
  constexpr uint64_t kAllowed = 96 << 10, kName = 32;
  const uint64_t bytes = p.ops.size() * sizeof(model::Op) + p.marks.size() * sizeof(model::Mark) +
                         p.mats.size() * (sizeof(model::Mat) + kName) +
                         p.vecs.size() * (sizeof(model::Vec) + kName);
  return (bytes > kAllowed ? bytes - kAllowed : 0) + p.approximated.bytes;
}

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
  const uint64_t tokens = static_cast<uint64_t>(plan.n_ctx) * sizeof(int32_t);
  const uint64_t index = plan.draft_max > 0 ? draft::NgramIndex::memory_bytes(plan.n_ctx) : 0;
  const uint64_t each =
      2 * tokens + index + static_cast<uint64_t>(p.hp.n_vocab) * kCandidateBytes + kPieces;
  return static_cast<uint64_t>(plan.n_sessions) * tokens +
         static_cast<uint64_t>(plan.parallel) * each;
}

// Draft tokens per pass if automatic: their logits take at most a thirty-second of the budget.
int32_t choose_draft(const Program& p, uint64_t budget) {
  const uint64_t row = static_cast<uint64_t>(std::max<int64_t>(p.hp.n_vocab, 1)) * sizeof(float);
  const uint64_t rows = budget == 0 ? UINT64_MAX : budget / 32 / row;
  return std::max(kMinDraft, static_cast<int32_t>(std::min<uint64_t>(rows, kDefaultDraft)));
}

// Largest batch: a ring that evicts has room for `spare` more positions than its first query sees;
// one that evicts blocks ends a batch at each block.
int32_t max_batch(const KvPlan& room) {
  if (room.slots > 0) return room.eviction.block;
  return room.evicts() ? kv::KvPolicy::spare(room.positions) : kMaxBatch;
}

void set_draft(const Program& p, const EngineOptions& options, int32_t tokens, MemoryPlan& plan) {
  const int32_t room = plan.kv_plan.evicts() ? max_batch(plan.kv_plan) : plan.n_ctx;
  const int32_t max_draft = single_batch(p) ? 0 : std::min(draft::kMaxDraftTokens, (room - 1) / 2);
  plan.draft_max = std::clamp(tokens, 0, max_draft);
  plan.logits_rows = std::max(options.logits_rows, plan.parallel + plan.draft_max);
  // A recurrent state rewinds to where the batch began: accepted tokens are computed twice.
  const bool twice = plan.draft_max > 0 && plan.kv_shape.recurrent();
  plan.draft_batch = (plan.draft_max + 1) * (twice ? 2 : 1);
}

void size_fixed(const Program& p, const kernels::Table& table, bool structured_output,
                MemoryPlan& plan) {
  plan.kv = static_cast<uint64_t>(plan.n_sessions) * plan.kv_shape.bytes();
  plan.vectors = vector_bytes(p);
  const ComputeBuffer::Sizes sizes = ComputeBuffer::measure(p, table, plan.working());
  plan.activations = sizes.activations;
  const uint64_t threads = static_cast<uint64_t>(plan.n_threads);
  plan.scratch = threads * sizes.scratch;
  plan.request = request_bytes(p, plan);
  if (structured_output) {
    plan.grammar =
        grammar::Vocabulary::memory_bytes(static_cast<uint64_t>(p.hp.n_vocab), plan.tokenizer) +
        static_cast<uint64_t>(plan.parallel) *
            (grammar::Matcher::memory_bytes(p.hp.n_vocab) + grammar::compile_memory());
  }
  if constexpr (model::kNextn) {
    if (p.nextn.on()) plan.nextn = nextn_bytes(p, plan.n_ctx);
  }
  uint64_t directory = 0;
  for (const model::Mat& m : p.mats) {
    directory += sizeof(model::Mat) + m.name.capacity();
  }
  plan.other =
      plan.base + kBaseBytes + directory + static_cast<uint64_t>(plan.own_threads) * kThreadBytes;
}

// Embedding row caches of the tables read by rows, in a sixty-fourth of the budget together.
void set_cached_rows(const Program& p, MemoryPlan& plan) {
  const bool held =
      p.embedding == p.head ? plan.weights.streamed_bytes == 0 : plan.weights.embedding_resident;
  for (size_t i = held ? 1 : 0; i < p.tables.size(); ++i) {
    const model::Mat& m = p.mats[static_cast<size_t>(p.tables[i])];
    const uint64_t all = static_cast<uint64_t>(m.rows) + EmbeddingRowCache::kWays - 1;
    const uint64_t room = plan.budget / 64 / p.tables.size();
    const uint64_t n = room / EmbeddingRowCache::bytes(1, static_cast<uint64_t>(m.row_bytes));
    plan.cached_rows[i] = std::min(n, all) / EmbeddingRowCache::kWays * EmbeddingRowCache::kWays;
  }
}

// Bytes that grow with the context: the KV cache, and all activations if an input is one batch.
// Recurrent states do not depend on it, so a shorter context would not make them smaller.
uint64_t context_bytes(const Program& p, const kernels::Table& table, const kv::KvTypes& types,
                       int64_t positions) {
  const int32_t n_ctx = static_cast<int32_t>(positions);
  const kv::KvShape shape = kv_shape(p, n_ctx, {n_ctx}, types);
  const uint64_t kv = shape.bytes() - std::min(shape.bytes(), 2 * shape.state_bytes());
  if (!single_batch(p)) return kv;
  return kv + ComputeBuffer::measure(p, table, {n_ctx, n_ctx, 1, 1}).activations;
}

int64_t model_context(const Program& p) {
  const int64_t texts = p.decoder > 0 ? 2 : 1;  // the encoder's and the decoder's
  return std::min<int64_t>(texts * p.hp.n_ctx_train, p.max_context);
}

// The shortest automatic context.
int32_t min_context(const EngineOptions& options) {
  return std::max(kMinContext, min_positions(options.kv_policy, options.kv));
}

// The automatic context without a budget.
int32_t default_context(const Program& p, const EngineOptions& options) {
  const int64_t limit = single_batch(p) ? kDefaultWholeContext : kDefaultContext;
  const auto n = static_cast<int32_t>(std::min(model_context(p), limit));
  return options.kv_policy.evicts() ? std::max(n, min_context(options)) : n;
}

int32_t shorter_context(int32_t n, int32_t min) {
  return std::max(min, (n - 1) / kMinContext * kMinContext);
}

int32_t choose_context(const Program& p, const kernels::Table& table,
                       const EngineOptions& options) {
  if (options.n_ctx > 0) return options.n_ctx;
  const int32_t min = min_context(options);
  int32_t n = default_context(p, options);
  while (options.memory_budget > 0 && n > min &&
         context_bytes(p, table, options.kv, n) > options.memory_budget / 4) {
    n = shorter_context(n, min);
  }
  return n;
}

ContextFrom context_from(const Program& p, const EngineOptions& options, int32_t n) {
  if (options.n_ctx > 0) return options.context_from;
  if (n < default_context(p, options)) return ContextFrom::kBudget;
  return n < model_context(p) ? ContextFrom::kDefault : ContextFrom::kModel;
}

uint64_t units_bytes(const residency::Plan& weights) {
  return weights.units.size() * kUnitBytes;
}

uint64_t spare_of(const EngineOptions& options, uint64_t budget) {
  return options.spare != nullptr ? options.spare(budget) : 0;
}

int32_t min_n_batch(const Program& p, const EngineOptions& options, const MemoryPlan& plan) {
  if (single_batch(p)) return plan.n_ctx;
  // All logits of a pass come from one batch.
  const int32_t most = max_batch(plan.kv_plan);
  const int32_t rows =
      std::min(options.logits_rows, options.n_batch > 0 ? std::min(options.n_batch, most) : most);
  return std::min(plan.n_ctx, std::max({plan.draft_batch, plan.parallel, options.min_batch, rows}));
}

// The context of a text whose length the budget limits.
void set_text(uint64_t budget, MemoryPlan& plan) {
  plan.n_ctx = endless_text(budget, plan.n_sessions, plan.kv_plan.positions);
  plan.kv_shape.n_ctx = plan.n_ctx;
}

}  // namespace

MemoryPlan::MemoryPlan() = default;
MemoryPlan::MemoryPlan(const MemoryPlan&) = default;
MemoryPlan::MemoryPlan(MemoryPlan&&) noexcept = default;
MemoryPlan& MemoryPlan::operator=(const MemoryPlan&) = default;
MemoryPlan& MemoryPlan::operator=(MemoryPlan&&) noexcept = default;
MemoryPlan::~MemoryPlan() = default;

namespace {
constexpr const char* kContextFrom[] = {"option", "model", "default", "budget"};
}  // namespace

const char* context_from_name(ContextFrom from) {
  return kContextFrom[static_cast<size_t>(from)];
}

ContextFrom parse_context_from(std::string_view name) {
  for (size_t i = 0; i < std::size(kContextFrom); ++i) {
    if (name == kContextFrom[i]) return static_cast<ContextFrom>(i);
  }
  return ContextFrom::kOption;
}

std::array<MemoryPart, kMemoryParts> MemoryPlan::parts() const {
  return {{{"pinned", weights.pinned_bytes},
           {"streamBuffer", weights.ring_bytes()},
           {"smallTensors", vectors},
           {"kv", kv},
           {"activations", activations},
           {"scratch", scratch},
           {"tokenizer", tokenizer},
           {"generation", request},
           {"grammar", grammar},
           {"adapters", adapters},
           {"nextn", nextn},
           {"reserve", reserve},
           {"other", other}}};
}

uint64_t MemoryPlan::total() const {
  uint64_t sum = 0;
  for (const MemoryPart& part : parts()) sum += part.bytes;
  return sum;
}

uint64_t kv_bytes(const Program& program, const MemoryPlan& plan, const kv::KvTypes& types) {
  if (!check_kv_types(program, types, plan.kv_plan).ok()) return 0;
  kv::KvShape shape = kv_shape(program, plan.n_ctx, plan.kv_plan, types);
  shape.n_checkpoints = plan.kv_shape.n_checkpoints;
  return static_cast<uint64_t>(plan.n_sessions) * shape.bytes();
}

uint64_t smallest_with_spare(uint64_t bytes, const EngineOptions& options) {
  uint64_t budget = 0;
  for (uint64_t needed = std::max(bytes, options.min_budget); budget < needed;) {
    budget = round_up(needed, options.page_bytes);
    needed = bytes + spare_of(options, budget);
  }
  return budget;
}

int64_t longest_context(const Program& program, const KvPlan& room, EngineOptions options,
                        const BudgetRule& rule) {
  // With a capacity, a context within it is no limit.
  int64_t longest = options.kv_policy.capacity > 0 ? room.positions : 0;
  int64_t above = std::min(program.max_context, model::kMaxContext) + 1;
  bool fits = false;
  while (longest + 1 < above) {
    const int64_t middle = (longest + above) / 2;
    options.n_ctx = static_cast<int32_t>(middle);
    const uint64_t needed = rule.smallest(options);
    if (needed > options.memory_budget) {
      above = middle;
    } else {  // 0: too short for a policy that evicts
      longest = middle;
      fits = needed > 0;
    }
  }
  return fits ? longest : 0;
}

Planner::Planner(const Program& program, const kernels::Table& table, uint64_t tokenizer_bytes,
                 const AdapterNeeds& adapters)
    : program_(program), table_(table), tokenizer_bytes_(tokenizer_bytes), adapters_(adapters) {
  Ordering(program, table, specs_, mat_item_, vec_item_);
  ring_ = residency::minimum_budget(specs_, table.row_group);
  max_units_ = units_bytes(residency::make_plan(specs_, table.row_group, ring_));
}

Planner::Planner(const Inspection& found)
    : Planner(found.program, *found.table, found.plan.tokenizer, found.adapters.needs()) {}

uint64_t Planner::size(const EngineOptions& options, MemoryPlan& plan) const {
  size_fixed(program_, table_, options.structured_output, plan);
  return plan.fixed() + ring_ + max_units_;
}

bool Planner::fits(const EngineOptions& options, MemoryPlan& plan) const {
  return size(options, plan) <= plan.budget || plan.budget == 0;
}

Status Planner::least_of(const EngineOptions& options, int32_t n_ctx, MemoryPlan& plan) const {
  plan = {};
  plan.adapters = adapters_.bytes;
  plan.adapter_scratch = adapters_.scratch;
  plan.tokenizer = tokenizer_bytes_;
  plan.budget = options.memory_budget;
  plan.base = options.base_bytes + program_bytes(program_);
  plan.reserve = options.reserve;
  plan.n_threads = options.n_threads > 0 ? options.n_threads : default_thread_count();
  plan.own_threads = options.borrows_threads ? 0 : plan.n_threads - 1;
  if (options.n_ctx < 0 || options.n_ctx > model::kMaxContext) {
    return error(Code::kInvalidArgument, "a context of %d positions is not between 1 and %lld",
                 options.n_ctx, static_cast<long long>(model::kMaxContext));
  }
  if (options.n_ctx > program_.max_context) {
    return error(Code::kInvalidArgument,
                 "a context of %d positions exceeds the %lld of this model's position embeddings",
                 options.n_ctx, static_cast<long long>(program_.max_context));
  }
  plan.kv_types = options.kv;
  plan.n_ctx = n_ctx;
  plan.context_from = context_from(program_, options, n_ctx);
  plan.parallel = single_batch(program_) ? 1 : std::clamp(options.parallel, 1, kMaxSessions);
  plan.n_sessions = std::clamp(std::max(options.n_sessions, plan.parallel), 1, kMaxSessions);
  Result<KvPlan> room = plan_room(program_, options.kv_policy, options.kv, n_ctx);
  if (!room.ok()) return room.status();
  plan.kv_plan = *room;
  SLUICE_RETURN_IF_ERROR(check_kv_types(program_, options.kv, plan.kv_plan));
  plan.parallel = std::min(plan.parallel, max_batch(plan.kv_plan));
  plan.endless = plan.kv_plan.evicts() &&
                 (options.kv_policy.capacity == 0 || options.n_ctx <= plan.kv_plan.positions);
  plan.kv_shape = kv_shape(program_, n_ctx, plan.kv_plan, options.kv);
  if (plan.kv_shape.bidirectional && plan.kv_shape.recurrent()) {
    return error(Code::kUnsupportedArchitecture,
                 "the metadata value attention.causal is false, but layers of this \"%s\" model "
                 "are causal",
                 program_.hp.arch.c_str());
  }
  uint64_t smaller;
  do {  // an endless text grows with the budget, by less than the budget
    smaller = plan.minimum;
    if (plan.endless) set_text(std::max<uint64_t>(smaller, 1), plan);
    plan.kv_shape.n_checkpoints =
        options.n_checkpoints >= 0
            ? options.n_checkpoints
            : std::min(kMinCheckpoints, choose_checkpoints(plan.kv_shape, plan.budget));
    set_draft(program_, options, options.draft_max < 0 ? kMinDraft : options.draft_max, plan);
    plan.n_batch = min_n_batch(program_, options, plan);
    plan.minimum = std::max(smaller, smallest_with_spare(size(options, plan), options));
  } while (plan.endless && plan.minimum > smaller);
  return {};
}

size_t Planner::types(EngineOptions options, Types* out, size_t* best) const {
  *best = 0;
  (*out)[0] = options.kv;
  if (!options.kv.automatic) return 1;
  const uint64_t budget = options.memory_budget;
  (*out)[0] = options.kv = {};
  options.memory_budget = 0;  // the context without a budget
  MemoryPlan wanted;
  if (!least_of(options, choose_context(program_, table_, options), wanted).ok()) return 1;
  size_t n = 0;
  uint64_t smallest = UINT64_MAX;
  for (const kv::KvType type :
       {kv::KvType::kF16, kv::KvType::kQ8_0, kv::KvType::kQ4_0, kv::KvType::kQ2}) {
    const uint64_t bytes = kv_bytes(program_, wanted, {type, type});
    if (bytes == 0 || bytes >= smallest)
      continue;  // not supported, or not smaller (small head_dim)
    if (budget > 0 && smallest > budget / 4) *best = n;
    smallest = bytes;
    (*out)[n++] = {type, type};
  }
  return n;
}

Status Planner::search(const EngineOptions& options, MemoryPlan& plan) const {
  Types all;
  size_t best;
  const size_t n_types = types(options, &all, &best);
  const bool chosen = options.n_ctx == 0 && options.kv_policy.capacity == 0;
  const bool fewer = options.min_threads > 0 && options.min_threads < options.n_threads;
  EngineOptions with = options;
  kv::KvTypes least_types;
  int32_t least_n = 0;
  uint64_t minimum = UINT64_MAX;
  Status status;
  // After the best types, the smaller ones, then those that only a short context can have.
  for (size_t i = 0; i < n_types; ++i) {
    with.kv = all[(best + i) % n_types];
    const int32_t min = chosen ? min_context(with) : INT32_MAX;
    for (int32_t n = choose_context(program_, table_, with);; n = shorter_context(n, min)) {
      status = least_of(with, n, plan);
      if (!status.ok()) break;
      if (plan.budget == 0 || plan.minimum <= plan.budget) {
        complete(with, plan);
        if (!options.kv.automatic && !fewer) return {};
        with = options;
        with.memory_budget = 1;
        if (chosen) with.n_ctx = n;
        MemoryPlan least;
        status = search(with, least);
        plan.minimum = least.minimum;
        return status;
      }
      if (n > min) continue;
      if (plan.minimum < minimum) {
        minimum = plan.minimum;
        least_types = with.kv;
        least_n = n;
      }
      break;
    }
  }
  if (fewer) {
    with = options;
    with.n_threads = options.min_threads;
    return search(with, plan);
  }
  if (least_n == 0 || n_types == 1) return status;
  with.kv = least_types;
  return least_of(with, least_n, plan);
}

Status Planner::least(EngineOptions options, MemoryPlan& plan) const {
  options.memory_budget = 1;
  return search(options, plan);
}

uint64_t Planner::smallest(const EngineOptions& options) const {
  MemoryPlan plan;
  return least(options, plan).ok() ? plan.minimum : 0;
}

Result<MemoryPlan> Planner::plan(const EngineOptions& options) const {
  MemoryPlan plan;
  SLUICE_RETURN_IF_ERROR(search(options, plan));
  if (plan.budget == 0 || plan.minimum <= plan.budget) return plan;
  if (plan.grammar > 0) {
    return error(
        Code::kBudgetTooSmall,
        "a memory budget of %llu bytes is too small for this model with a context of %d: "
        "the smallest that works is %llu bytes, %llu of them for structured output (option "
        "structuredOutput, in C structured_output)",
        static_cast<unsigned long long>(plan.budget), plan.kv_plan.positions,
        static_cast<unsigned long long>(plan.minimum),
        static_cast<unsigned long long>(plan.grammar));
  }
  return error(Code::kBudgetTooSmall,
               "a memory budget of %llu bytes is too small for this model with a context of %d: "
               "the smallest that works is %llu bytes",
               static_cast<unsigned long long>(plan.budget), plan.kv_plan.positions,
               static_cast<unsigned long long>(plan.minimum));
}

Result<MemoryPlan> plan_memory(const Program& program, const kernels::Table& table,
                               uint64_t tokenizer_bytes, const EngineOptions& options,
                               const AdapterNeeds& adapters) {
  return Planner(program, table, tokenizer_bytes, adapters).plan(options);
}

void Planner::complete(const EngineOptions& options, MemoryPlan& plan) const {
  plan.mat_item = mat_item_;
  plan.vec_item = vec_item_;
  plan.reserve += spare_of(options, plan.budget);
  if (plan.endless) {
    const int32_t n_ctx = plan.n_ctx;
    set_text(plan.budget, plan);
    if (!fits(options, plan)) plan.n_ctx = plan.kv_shape.n_ctx = n_ctx;
  }
  if (options.n_checkpoints < 0) {
    const int32_t few = plan.kv_shape.n_checkpoints;
    plan.kv_shape.n_checkpoints = choose_checkpoints(plan.kv_shape, plan.budget);
    if (!fits(options, plan)) plan.kv_shape.n_checkpoints = few;
  }
  if (options.draft_max < 0) {
    set_draft(program_, options, choose_draft(program_, plan.budget), plan);
    plan.n_batch = min_n_batch(program_, options, plan);
    if (!fits(options, plan)) set_draft(program_, options, kMinDraft, plan);
  }
  // Choose the largest batch whose buffers take at most an eighth of the budget.
  const int32_t longest = max_batch(plan.kv_plan);
  const int32_t largest = options.n_batch > 0 ? std::min(options.n_batch, longest) : longest;
  const int32_t smallest = min_n_batch(program_, options, plan);
  const int32_t wanted =
      single_batch(program_) ? plan.n_ctx : std::min(plan.n_ctx, std::max(smallest, largest));
  for (plan.n_batch = wanted; plan.n_batch > smallest;
       plan.n_batch = std::max(smallest, (plan.n_batch + 1) / 2)) {
    const bool fit = fits(options, plan);
    if (plan.budget == 0) break;
    if (fit && plan.activations + plan.scratch <= plan.budget / 8) break;
  }
  // Unit records take memory too, more the smaller the units are. The smallest budget has
  // max_units_ of them, so the loop ends there at the latest.
  uint64_t directory = 0;
  const auto lay_weights = [&] {
    size(options, plan);
    const uint64_t room = plan.budget == 0 ? UINT64_MAX / 4 : plan.budget - plan.fixed();
    for (;;) {
      plan.weights = residency::make_plan(specs_, table_.row_group, room - directory);
      const uint64_t needed = std::min(units_bytes(plan.weights), max_units_);
      if (needed <= directory) break;
      directory = needed;
    }
  };
  lay_weights();
  // Cache embedding rows, unless that would make a fully resident model stream.
  if (plan.budget > 0) {
    const bool resident = plan.weights.streamed_bytes == 0;
    set_cached_rows(program_, plan);
    const bool fit = fits(options, plan);
    if (fit) lay_weights();
    if (!fit || (resident && plan.weights.streamed_bytes > 0)) {
      plan.cached_rows = {};
      lay_weights();
    }
  }
  plan.other += directory;
}

}  // namespace sluice::session

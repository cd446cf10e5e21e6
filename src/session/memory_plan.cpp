// The arithmetic of the plan.
#include "session/memory_plan.h"

#include <algorithm>
#include <array>

#include "base/thread_pool.h"

namespace sluice::session {
namespace {

using model::Buf;
using model::kBufCount;
using model::Program;

constexpr int32_t kLeastContext = 128;       // that is chosen of itself
constexpr uint64_t kBaseBytes = 192 << 10;   // queue, directory, program, allocator's own
constexpr uint64_t kUnitBytes = 192;         // its entries in the plan and in the residency
constexpr uint64_t kThreadBytes = 66 << 10;  // stack pages that a worker touches, and its record

// Every tensor once, in the order in which a pass first uses it.
class Ordering {
 public:
  Ordering(const Program& p, const kernels::Table& table) : p_(p), table_(table) {
    mat_item.assign(p.mats.size(), -1);
    vec_item.assign(p.vecs.size(), -1);
    for (const model::Rope& r : p.ropes) {
      vec(r.factors_short);
      vec(r.factors_long);
    }
    for (const model::Op& op : p.ops) {
      vec(op.vec0);
      vec(op.vec1);
      for (int32_t i = 0; i < op.n_parts; ++i) {
        vec(op.parts[static_cast<size_t>(i)].bias);
        mat(op.parts[static_cast<size_t>(i)].mat);
      }
      if (op.moe < 0) continue;
      const model::Moe& moe = p.moes[static_cast<size_t>(op.moe)];
      for (size_t e = 0; e < moe.gate.size(); ++e) {
        mat(moe.gate[e]);
        mat(moe.up[e]);
        mat(moe.down[e]);
      }
    }
    if (p.embedding >= 0) mat(p.embedding);
  }

  std::vector<residency::MatrixSpec> specs;
  std::vector<int32_t> mat_item, vec_item;

 private:
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
    mat_item[static_cast<size_t>(index)] = static_cast<int32_t>(specs.size());
    specs.push_back(s);
  }

  const Program& p_;
  const kernels::Table& table_;
};

kv::KvShape kv_shape(const Program& p, int32_t n_ctx, int32_t n_batch) {
  kv::KvShape shape;
  for (int64_t layer = 0; layer < p.hp.n_layer; ++layer) {
    shape.n_head_kv.push_back(static_cast<int32_t>(p.hp.kv_heads(layer)));
  }
  shape.dk = static_cast<int32_t>(p.hp.head_dim_k);
  shape.dv = static_cast<int32_t>(p.hp.head_dim_v);
  shape.n_ctx = n_ctx;
  if (p.hp.conv_kernel > 0) {
    shape.conv_width = static_cast<int32_t>(p.hp.n_embd);
    shape.conv_rows = n_batch + kConvRows;
  }
  return shape;
}

uint64_t activation_bytes(const Program& p, const kernels::Table& table, int32_t n_ctx,
                          int32_t n_batch, int32_t logits_rows) {
  uint64_t floats = 0;
  int64_t widest = 0;
  for (size_t b = 0; b < kBufCount; ++b) {
    const uint64_t rows = b == static_cast<size_t>(Buf::kLogits)
                              ? static_cast<uint64_t>(logits_rows)
                              : static_cast<uint64_t>(n_batch);
    floats += rows * static_cast<uint64_t>(p.width[b]) + 16;
  }
  for (const model::Mat& m : p.mats) widest = std::max(widest, m.cols);
  uint64_t bytes = floats * sizeof(float);
  bytes += static_cast<uint64_t>(n_batch) * table.q8_bytes(widest);
  for (const model::Rope& r : p.ropes) {
    bytes += static_cast<uint64_t>(n_batch) * static_cast<uint64_t>(r.hp.n_rot) * sizeof(float);
  }
  if (p.embedding >= 0) {  // embedding rows as they are in the file
    bytes += static_cast<uint64_t>(n_batch) *
             static_cast<uint64_t>(p.mats[static_cast<size_t>(p.embedding)].row_bytes);
  }
  if (!p.moes.empty()) {  // tokens of one expert, gathered
    bytes +=
        2ull * static_cast<uint64_t>(n_batch) * static_cast<uint64_t>(p.hp.n_embd) * sizeof(float);
  }
  const int32_t splits = (n_ctx + attention_split(n_ctx) - 1) / attention_split(n_ctx);
  if (splits > 1) {
    bytes += static_cast<uint64_t>(splits) * static_cast<uint64_t>(p.hp.n_head) *
             static_cast<uint64_t>(p.hp.head_dim_v + 2) * sizeof(float);
  }
  bytes += static_cast<uint64_t>(n_ctx) * sizeof(int32_t);  // token history
  return bytes;
}

uint64_t vector_bytes(const Program& p) {
  uint64_t bytes = 0;
  for (const model::Vec& v : p.vecs) {
    bytes += round_up_to_line(static_cast<size_t>(v.n) * sizeof(float));
  }
  return bytes;
}

}  // namespace

int32_t attention_split(int32_t n_ctx) {
  const int32_t even = (n_ctx + kMaxSplits - 1) / kMaxSplits;
  return std::max(kMinSplit, (even + kMinSplit - 1) / kMinSplit * kMinSplit);
}

int32_t largest_group(const model::HParams& hp) {
  int64_t group = 1;
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    if (hp.kv_heads(layer) > 0) group = std::max(group, hp.n_head / hp.kv_heads(layer));
  }
  return static_cast<int32_t>(group);
}

int32_t attention_tile_tokens(const model::HParams& hp, int32_t n_batch) {
  return std::clamp(kMaxTileRows / largest_group(hp), 1, n_batch);
}

uint64_t scratch_bytes(const Program& p, const kernels::Table& table, int32_t n_ctx,
                       int32_t n_batch) {
  size_t bytes = 0;
  for (const model::Mat& m : p.mats) {
    bytes = std::max(bytes, table.matmul_scratch(m.type, m.cols));
    bytes = std::max(bytes, static_cast<size_t>(m.row_bytes * table.row_group));  // packing
  }
  const int32_t rows = attention_tile_tokens(p.hp, n_batch) * largest_group(p.hp);
  const int32_t dk = static_cast<int32_t>(p.hp.head_dim_k);
  const int32_t dv = static_cast<int32_t>(p.hp.head_dim_v);
  const int32_t splits = (n_ctx + attention_split(n_ctx) - 1) / attention_split(n_ctx);
  const size_t n = static_cast<size_t>(rows);
  size_t attention = round_up_to_line(table.attention_scratch(rows, dk, dv));
  attention += round_up_to_line(n * static_cast<size_t>(dk) * sizeof(float));  // queries
  attention += round_up_to_line(n * static_cast<size_t>(dv) * static_cast<size_t>(splits) *
                                sizeof(float));  // outputs
  attention += 2 * round_up_to_line(n * static_cast<size_t>(splits) * sizeof(float));
  attention += 2 * round_up_to_line(n * sizeof(int32_t));
  attention += round_up_to_line(static_cast<size_t>(std::max(dk, dv)) * sizeof(float));
  return round_up_to_line(std::max(bytes, attention)) + kAlignment;
}

namespace {

void size_fixed(const Program& p, const kernels::Table& table, MemoryPlan& plan) {
  plan.kv_shape = kv_shape(p, plan.n_ctx, plan.n_batch);
  plan.kv = plan.kv_shape.bytes();
  plan.vectors = vector_bytes(p);
  plan.activations = activation_bytes(p, table, plan.n_ctx, plan.n_batch, plan.logits_rows);
  const uint64_t threads = static_cast<uint64_t>(plan.n_threads);
  plan.scratch = threads * scratch_bytes(p, table, plan.n_ctx, plan.n_batch);
  uint64_t directory = 0;
  for (const model::Mat& m : p.mats) {
    directory += sizeof(model::Mat) + m.name.capacity();
  }
  plan.other = plan.base + kBaseBytes + (threads - 1) * kThreadBytes + directory;
}

int32_t choose_context(const Program& p, const EngineOptions& options) {
  const int64_t own = std::min<int64_t>({p.hp.n_ctx_train, p.max_context, kDefaultContext});
  int64_t n_ctx = own;
  while (options.memory_budget > 0 && n_ctx > kLeastContext &&
         kv_shape(p, static_cast<int32_t>(n_ctx), 1).bytes() > options.memory_budget / 4) {
    n_ctx = std::max<int64_t>(kLeastContext, n_ctx / 2);
  }
  return static_cast<int32_t>(n_ctx);
}

}  // namespace

Result<MemoryPlan> plan_memory(const Program& program, const kernels::Table& table,
                               uint64_t tokenizer_bytes, const EngineOptions& options) {
  MemoryPlan plan;
  plan.tokenizer = tokenizer_bytes;
  plan.budget = options.memory_budget;
  plan.base = options.base_bytes;
  plan.n_threads = options.n_threads > 0 ? options.n_threads : default_thread_count();
  plan.logits_rows = std::max(1, options.logits_rows);
  if (options.n_ctx < 0 || options.n_ctx > model::kMaxContext) {
    return error(Code::kInvalidArgument, "a context of %d positions is not between 1 and %lld",
                 options.n_ctx, static_cast<long long>(model::kMaxContext));
  }
  if (options.n_ctx > program.max_context) {
    return error(Code::kInvalidArgument,
                 "a context of %d positions is beyond the %lld that this model has learned",
                 options.n_ctx, static_cast<long long>(program.max_context));
  }
  plan.n_ctx = options.n_ctx > 0 ? options.n_ctx : choose_context(program, options);
  Ordering order(program, table);
  const uint64_t ring = residency::minimum_budget(order.specs, table.row_group);
  plan.mat_item = order.mat_item;
  plan.vec_item = order.vec_item;

  const int32_t least = std::min(plan.n_ctx, std::max(1, options.min_batch));
  const auto units_bytes = [](const residency::Plan& weights) {
    return weights.units.size() * kUnitBytes;
  };
  plan.n_batch = least;
  size_fixed(program, table, plan);
  const uint64_t most_units = units_bytes(residency::make_plan(order.specs, table.row_group, ring));
  const uint64_t bare = plan.fixed() + ring + most_units;
  const auto spare = [&options](uint64_t n) {
    return options.spare != nullptr ? options.spare(n) : 0;
  };
  plan.minimum = bare;
  while (plan.minimum < bare + spare(plan.minimum)) plan.minimum = bare + spare(plan.minimum);
  plan.minimum = (plan.minimum + options.page_bytes - 1) / options.page_bytes * options.page_bytes;
  if (plan.budget > 0 && plan.budget < plan.minimum) {
    // A context that was chosen here may have been too long after all.
    EngineOptions shorter = options;
    for (int32_t n = plan.n_ctx; options.n_ctx == 0 && n > kLeastContext;) {
      shorter.n_ctx = n = std::max(kLeastContext, n / 2);
      Result<MemoryPlan> found = plan_memory(program, table, tokenizer_bytes, shorter);
      if (found.ok() || n == kLeastContext) return found;
    }
    return error(Code::kBudgetTooSmall,
                 "a memory budget of %llu bytes is too small for this model with a context of %d: "
                 "the smallest that works is %llu bytes",
                 static_cast<unsigned long long>(plan.budget), plan.n_ctx,
                 static_cast<unsigned long long>(plan.minimum));
  }
  plan.base += spare(plan.budget);
  // The largest batch whose buffers take at most an eighth of the budget.
  const int32_t wanted = std::min(plan.n_ctx, options.n_batch > 0 ? options.n_batch : kMaxBatch);
  for (plan.n_batch = wanted; plan.n_batch > least;
       plan.n_batch = std::max(least, (plan.n_batch + 1) / 2)) {
    size_fixed(program, table, plan);
    if (plan.budget == 0) break;
    const bool modest = plan.activations + plan.scratch <= plan.budget / 8;
    if (modest && plan.fixed() + ring + most_units <= plan.budget) break;
  }
  size_fixed(program, table, plan);
  const uint64_t room = plan.budget == 0 ? UINT64_MAX / 4 : plan.budget - plan.fixed();
  // The units take room themselves, the more the smaller they are. At the smallest budget there are
  // most_units of them, so this ends there at the latest.
  uint64_t directory = 0;
  for (;;) {
    plan.weights = residency::make_plan(order.specs, table.row_group, room - directory);
    const uint64_t needed = std::min(units_bytes(plan.weights), most_units);
    if (needed <= directory) break;
    directory = needed;
  }
  plan.other += directory;
  return plan;
}

}  // namespace sluice::session

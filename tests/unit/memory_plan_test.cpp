// The memory plan over random budgets, contexts and model shapes, and the compute buffer that it
// accounts for: planned sizes equal allocated sizes.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "gguf_builder.h"
#include "model/program.h"
#include "session/plan_sizes.h"
#include "session/planner.h"

namespace sluice::session {
namespace {

using test::GgufBuilder;

struct Sizes {
  uint32_t layers = 4, embd = 256, ff = 640, heads = 8, kv_heads = 2, vocab = 1000, ctx = 8192;
  uint32_t window = 0, experts = 0, conv = 0;
};

// A header without weights. `arch` is llama, mistral (sliding windows), or lfm2, whose layers
// alternate recurrent state and attention.
std::vector<uint8_t> file_of(const std::string& arch, const Sizes& s) {
  GgufBuilder b;
  const auto number = [&](const char* key, uint32_t n) { b.number(arch + "." + key, n); };
  b.string("general.architecture", arch);
  number("context_length", s.ctx);
  number("embedding_length", s.embd);
  number("block_count", s.layers);
  number("feed_forward_length", s.ff);
  number("attention.head_count", s.heads);
  if (s.window > 0) number("attention.sliding_window", s.window);
  if (s.experts > 0) {
    number("expert_count", s.experts);
    number("expert_used_count", 2);
  }
  std::vector<uint32_t> kv(s.layers, s.kv_heads);
  if (s.conv > 0) {
    number("shortconv.l_cache", s.conv);
    for (uint32_t i = 0; i < s.layers; i += 2) kv[i] = 0;
  }
  b.numbers(arch + ".attention.head_count_kv", kv);
  uint64_t at = 0;
  const auto f32 = [&](const std::string& name, const std::vector<uint64_t>& ne) {
    b.tensor_at(name, 0, ne, at);
    uint64_t n = 4;
    for (const uint64_t d : ne) n *= d;
    at += (n + 31) / 32 * 32;
  };
  const uint64_t dim = s.embd / s.heads, e = s.embd;
  f32("token_embd.weight", {e, s.vocab});
  f32(s.conv > 0 ? "token_embd_norm.weight" : "output_norm.weight", {e});
  for (uint32_t i = 0; i < s.layers; ++i) {
    const std::string blk = "blk." + std::to_string(i) + ".";
    f32(blk + "attn_norm.weight", {e});
    f32(blk + "ffn_norm.weight", {e});
    if (kv[i] == 0) {
      f32(blk + "shortconv.in_proj.weight", {e, 3 * e});
      f32(blk + "shortconv.conv.weight", {s.conv, e});
      f32(blk + "shortconv.out_proj.weight", {e, e});
    } else {
      f32(blk + "attn_q.weight", {e, e});
      f32(blk + "attn_k.weight", {e, dim * kv[i]});
      f32(blk + "attn_v.weight", {e, dim * kv[i]});
      f32(blk + "attn_output.weight", {e, e});
      if (s.conv > 0) {
        f32(blk + "attn_q_norm.weight", {dim});
        f32(blk + "attn_k_norm.weight", {dim});
      }
    }
    if (s.experts > 0) {
      f32(blk + "ffn_gate_inp.weight", {e, s.experts});
      f32(blk + "ffn_gate_exps.weight", {e, s.ff, s.experts});
      f32(blk + "ffn_up_exps.weight", {e, s.ff, s.experts});
      f32(blk + "ffn_down_exps.weight", {s.ff, e, s.experts});
    } else {
      f32(blk + "ffn_gate.weight", {e, s.ff});
      f32(blk + "ffn_up.weight", {e, s.ff});
      f32(blk + "ffn_down.weight", {s.ff, e});
    }
  }
  return b.build();
}

model::Program program_of(const std::string& arch, const Sizes& sizes) {
  const std::vector<uint8_t> file = file_of(arch, sizes);
  gguf::Header header;
  const auto parsed = gguf::parse_header(file, 0, &header);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  Result<model::Program> program = model::build_program(header);
  EXPECT_TRUE(program.ok()) << program.status().message();
  return program.ok() ? std::move(*program) : model::Program();
}

std::vector<model::Program> programs() {
  std::vector<model::Program> out;
  out.push_back(program_of("llama", {}));
  out.push_back(program_of("llama", {.experts = 4}));
  out.push_back(program_of("mistral", {.window = 100}));
  out.push_back(program_of("lfm2", {.conv = 3}));
  return out;
}

EngineOptions random_options(std::mt19937& random) {
  EngineOptions o;
  o.n_threads = 1 + static_cast<int32_t>(random() % 4);
  if (random() % 2 == 0) o.min_threads = 1 + static_cast<int32_t>(random() % 4);
  if (random() % 4 == 0) o.min_budget = random() % (16 << 20);
  o.n_ctx = random() % 3 == 0 ? 0 : 1 + static_cast<int32_t>(random() % 8192);
  o.n_batch = random() % 2 == 0 ? 0 : 1 + static_cast<int32_t>(random() % 300);
  o.min_batch = random() % 2 == 0 ? 1 : 1 + static_cast<int32_t>(random() % 20);
  o.n_sessions = 1 + static_cast<int32_t>(random() % 3);
  o.n_checkpoints = random() % 2 == 0 ? -1 : static_cast<int32_t>(random() % 6);
  o.base_bytes = random() % (1 << 20);
  o.page_bytes = random() % 2 == 0 ? 1 : 65536;
  if (random() % 2 == 0) o.spare = [](uint64_t budget) { return budget / 16; };
  if (random() % 2 == 0) o.draft_max = -1 + static_cast<int32_t>(random() % 40);
  return o;
}

Result<MemoryPlan> plan_of(const model::Program& p, const EngineOptions& o) {
  return plan_memory(p, kernels::best(), 12345, o);
}

TEST(MemoryPlan, TheMinimumIsExact) {
  std::mt19937 random(1);
  const std::vector<model::Program> all = programs();
  for (int round = 0; round < 300 && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    const model::Program& p = all[random() % all.size()];
    EngineOptions o = random_options(random);
    if (o.n_ctx == 0) o.n_ctx = 500;  // an automatic context may become shorter
    const Result<MemoryPlan> free = plan_of(p, o);
    ASSERT_TRUE(free.ok()) << free.status().message();
    EXPECT_EQ(free->weights.streamed_bytes, 0u);
    // The number of checkpoints depends on the budget; the minimum does not.
    const uint64_t minimum = free->budget.minimum;
    EXPECT_EQ(minimum % o.page_bytes, 0u);
    o.memory_budget = minimum;
    const Result<MemoryPlan> least = plan_of(p, o);
    ASSERT_TRUE(least.ok()) << least.status().message();
    EXPECT_LE(least->total(), minimum);
    o.memory_budget = minimum - 1;
    const Status below = plan_of(p, o).status();
    EXPECT_EQ(below.code(), Code::kBudgetTooSmall);
    EXPECT_NE(below.message().find(std::to_string(minimum)), std::string::npos) << below.message();
  }
}

TEST(MemoryPlan, NothingExceedsTheBudget) {
  std::mt19937 random(2);
  const std::vector<model::Program> all = programs();
  int fit = 0;
  for (int round = 0; round < 500 && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    const model::Program& p = all[random() % all.size()];
    EngineOptions o = random_options(random);
    o.memory_budget = 1 + random() % (1 << (18 + random() % 9));
    const Result<MemoryPlan> plan = plan_of(p, o);
    if (!plan.ok()) {
      EXPECT_EQ(plan.status().code(), Code::kBudgetTooSmall) << plan.status().message();
      continue;
    }
    ++fit;
    EXPECT_LE(plan->total(), o.memory_budget);
    const int32_t asked = o.n_batch > 0 ? o.n_batch : kMaxBatch;
    EXPECT_GE(plan->batch.n_batch, std::min({plan->context.n_ctx, o.min_batch, asked}));
    EXPECT_LE(plan->batch.n_batch, std::min(plan->context.n_ctx, std::max(o.min_batch, kMaxBatch)));
    EXPECT_GE(plan->batch.n_batch, std::min(plan->context.n_ctx, plan->batch.draft_batch));
    EXPECT_GT(plan->batch.logits_rows, plan->batch.draft_max);
    EXPECT_LE(plan->batch.draft_max, plan->context.n_ctx / 2);
    if (o.draft_max >= 0) {
      EXPECT_EQ(plan->batch.draft_max, std::min({o.draft_max, 31, (plan->context.n_ctx - 1) / 2}));
    } else {
      EXPECT_GE(plan->batch.draft_max, std::min(3, (plan->context.n_ctx - 1) / 2));
    }
    EXPECT_EQ(plan->sessions.n_sessions, o.n_sessions);
    if (o.n_ctx > 0) {
      EXPECT_EQ(plan->context.n_ctx, o.n_ctx);
    }
    EXPECT_EQ(plan->bytes.kv, static_cast<uint64_t>(o.n_sessions) * plan->kv.shape.bytes());
    if (o.n_checkpoints >= 0) {
      EXPECT_EQ(plan->kv.shape.n_checkpoints, o.n_checkpoints);
    } else if (plan->kv.shape.recurrent()) {
      EXPECT_GE(plan->kv.shape.n_checkpoints,
                std::min(2, (plan->context.n_ctx + kCheckpointEvery - 1) / kCheckpointEvery));
    } else {
      EXPECT_EQ(plan->kv.shape.n_checkpoints, 0);
    }
    // A larger budget also works and keeps at least as much resident.
    o.memory_budget += 1 + random() % (1 << 22);
    const Result<MemoryPlan> more = plan_of(p, o);
    ASSERT_TRUE(more.ok()) << more.status().message();
    EXPECT_GE(more->context.n_ctx, plan->context.n_ctx);
  }
  EXPECT_GT(fit, 10);
}

// Bits per value, a 16-bit scale for every 32 of them, and f16 copies of the last positions.
TEST(MemoryPlan, TheKvCacheTakesTheBytesOfItsType) {
  EngineOptions o;
  o.n_ctx = 8192;
  const auto program = program_of("llama", {});
  const int64_t values = int64_t{4} * 2 * 2 * 32;  // layers, heads, keys and values, of a head
  const int64_t copies = (kMaxBatch + kernels::kKvGroup) * values * 2;
  const std::pair<const char*, int64_t> expected[] = {
      {"f16", values * 2 * o.n_ctx},
      {"q8_0", values * 34 / 32 * o.n_ctx},
      {"q4_0", values * 18 / 32 * o.n_ctx + copies},
      {"q2", values * 20 / 32 * o.n_ctx + copies},  // a head of 32 takes a block of 64
      {"f16,q8_0", values * 98 / 64 * o.n_ctx}};
  for (const auto& [type, bytes] : expected) {
    o.kv = *kv::parse_kv_types(type);
    const auto plan = plan_of(program, o);
    ASSERT_TRUE(plan.ok()) << type << ": " << plan.status().message();
    EXPECT_EQ(plan->bytes.kv, static_cast<uint64_t>(bytes)) << type;
    EXPECT_EQ(kv_bytes(program, *plan, o.kv), plan->bytes.kv) << type;
    EXPECT_EQ(kv::kv_types_name(plan->kv.types), type);
  }
  for (const char* wrong : {"", "q4", "q8_0,", ",", "q8_0,q4_0,q2", "F16"}) {
    EXPECT_EQ(kv::parse_kv_types(wrong).status().code(), Code::kInvalidArgument) << wrong;
  }
}

// Chooses the best types that take at most a quarter of the budget, and never shortens the context.
TEST(MemoryPlan, TheBestFittingKvTypesAreChosen) {
  const auto program = program_of("llama", {.heads = 4});  // heads of 64: no padding in q2
  EngineOptions o;
  o.n_ctx = 8192;
  o.kv.automatic = true;
  for (const char* type : {"f16", "q8_0", "q4_0", "q2"}) {
    EngineOptions named = o;
    named.kv = *kv::parse_kv_types(type);
    named.memory_budget = 0;
    const auto alone = plan_of(program, named);
    ASSERT_TRUE(alone.ok());
    o.memory_budget = 4 * alone->bytes.kv;
    const auto plan = plan_of(program, o);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_EQ(kv::kv_types_name(plan->kv.types), type);
    EXPECT_EQ(plan->context.n_ctx, o.n_ctx);
  }
  o.memory_budget = 0;
  EXPECT_TRUE(plan_of(program, o)->kv.types.f16());
}

// More precise types may fit in a quarter of the budget, while everything else leaves less.
TEST(MemoryPlan, AutomaticKvTypesNeverRefuseALargerBudget) {
  const auto program = program_of("llama", {.heads = 4, .vocab = 60'000});
  EngineOptions o;
  o.n_ctx = 2048;
  o.kv.automatic = true;
  o.memory_budget = plan_of(program, o)->budget.minimum;
  int types = 0;
  for (kv::KvTypes last; o.memory_budget < 64 << 20; o.memory_budget += 100'000) {
    const auto plan = plan_of(program, o);
    ASSERT_TRUE(plan.ok()) << o.memory_budget << ": " << plan.status().message();
    types += types == 0 || plan->kv.types.k != last.k ? 1 : 0;
    last = plan->kv.types;
  }
  EXPECT_GT(types, 2);
}

// Otherwise the longest context could not be found by bisection.
TEST(MemoryPlan, ALongerContextNeverTakesLess) {
  for (const model::Program& p : programs()) {
    for (const char* type : {"f16", "q4_0"}) {
      const Planner planner(p, kernels::best(), 12345, {});
      EngineOptions o;
      o.n_threads = 4;
      o.kv = *kv::parse_kv_types(type);
      uint64_t last = 0;
      for (o.n_ctx = 1; o.n_ctx < 100'000; o.n_ctx += o.n_ctx % 512 < 2 ? 1 : 255) {
        const uint64_t smallest = planner.smallest(o);
        EXPECT_GE(smallest, std::max<uint64_t>(last, 1))
            << p.hp.arch << " " << type << " " << o.n_ctx;
        last = smallest;
      }
    }
  }
}

TEST(MemoryPlan, AllRowsOfLogitsFitOneBatch) {
  const auto program = program_of("llama", {});
  EngineOptions o;
  o.n_ctx = 1000;
  o.logits_rows = 200;
  o.memory_budget = plan_of(program, o)->budget.minimum;
  EXPECT_EQ(plan_of(program, o)->batch.n_batch, 200);
  o.n_batch = 50;  // as the caller wants
  o.memory_budget = plan_of(program, o)->budget.minimum;
  EXPECT_EQ(plan_of(program, o)->batch.n_batch, 50);
}

// The ring and the sinks, and no more for an endless text.
TEST(MemoryPlan, AWindowCacheHasItsExactSize) {
  const auto program = program_of("llama", {});
  const int64_t position = int64_t{4} * 2 * 2 * 32 * 2;  // layers, heads, keys and values, f16
  for (const int32_t size : {128, 256, 1024, 4096}) {
    EngineOptions o;
    o.kv_policy.window = true;
    o.kv_policy.capacity = size;
    const auto plan = plan_of(program, o);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_EQ(plan->bytes.kv, static_cast<uint64_t>(position * (size + kv::kDefaultSinks)));
    EXPECT_EQ(plan->context.n_ctx, 1 << 20);
    EXPECT_LE(plan->batch.n_batch, size - plan->kv.layout.sinks - plan->kv.layout.window);
    for (const kv::LayerShape& l : plan->kv.shape.layers) {
      EXPECT_TRUE(l.evicts);
      EXPECT_EQ(l.capacity, size);
      EXPECT_GE(l.sinks + l.window, size * 3 / 4);
    }
    o.n_ctx = 5000;
    EXPECT_EQ(plan_of(program, o)->context.n_ctx, 5000);
  }
  EngineOptions o;
  o.kv_policy.window = true;
  for (const auto& [size, keep] : {std::pair(100, 4), {256, -1}, {256, 200}, {1 << 25, 4}}) {
    o.kv_policy.capacity = size;
    o.kv_policy.sinks = keep;
    EXPECT_EQ(plan_of(program, o).status().code(), Code::kInvalidArgument) << size << " " << keep;
  }
}

// Most positions in a ring, the others heavy hitters; sums of attention, and the queries that
// decide.
TEST(MemoryPlan, AHeavyHitterCacheHasItsExactSize) {
  const auto program = program_of("llama", {});
  for (const int32_t size : {128, 192, 448, 512, 1024, 4096}) {
    EngineOptions o;
    o.kv_policy.heavy_hitter = true;
    o.kv_policy.capacity = size;
    const auto plan = plan_of(program, o);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    uint64_t bytes = 0;
    for (const kv::LayerShape& l : plan->kv.shape.layers) {
      EXPECT_EQ(l.capacity + l.slots, size);
      EXPECT_GE(l.slots, size / 4);
      EXPECT_GE(l.capacity, size / 2);
      EXPECT_EQ(l.capacity % l.eviction.block, 0);
      EXPECT_EQ(l.slots % l.eviction.block, 0);
      EXPECT_GE(l.capacity, 2 * l.eviction.block);
      EXPECT_EQ(l.seen_from(l.capacity - 1), 0);
      EXPECT_EQ(l.seen_from(l.capacity), l.eviction.block);
      EXPECT_EQ(l.eviction.until(l.capacity), l.eviction.block);
      const int64_t head = int64_t{size} * (2 * 2 * l.dk + 4) + int64_t{8} * l.group * l.dk * 4;
      bytes += static_cast<uint64_t>(l.heads * head + 63) / 64 * 64;
    }
    EXPECT_EQ(plan->bytes.kv, bytes);
    EXPECT_EQ(plan->context.n_ctx, 1 << 20);
    EXPECT_LE(plan->batch.n_batch, plan->kv.layout.eviction.block);
  }
}

TEST(MemoryPlan, LayersHaveTheCapacityTheyNeed) {
  EngineOptions o;
  o.n_ctx = 8000;
  const auto windows = plan_of(program_of("mistral", {.window = 100}), o);
  ASSERT_TRUE(windows.ok());
  for (const kv::LayerShape& l : windows->kv.shape.layers) {
    EXPECT_EQ(l.window, 100);
    EXPECT_GE(l.capacity, 100 + 2 * kMaxBatch);
    EXPECT_LT(l.capacity, 2000);
    EXPECT_EQ(l.capacity % attention_split(o.n_ctx), 0) << "a part is broken by the ring's end";
  }
  EngineOptions pictures = o;
  pictures.min_batch = 1000;
  pictures.kv = *kv::parse_kv_types("q4_0");
  const auto longer = plan_of(program_of("mistral", {.window = 100}), pictures);
  ASSERT_TRUE(longer.ok());
  EXPECT_GE(longer->batch.n_batch, 1000);
  for (const kv::LayerShape& l : longer->kv.shape.layers) {
    EXPECT_GE(l.capacity, 100 + 2 * longer->batch.n_batch);
    EXPECT_GE(l.recent, kernels::kKvGroup - 1 + longer->batch.n_batch);
  }
  const auto states = plan_of(program_of("lfm2", {.conv = 3}), o);
  ASSERT_TRUE(states.ok());
  EXPECT_TRUE(states->kv.shape.recurrent());
  for (size_t i = 0; i < states->kv.shape.layers.size(); ++i) {
    const kv::LayerShape& l = states->kv.shape.layers[i];
    EXPECT_EQ(l.state, i % 2 == 0 ? 2 * 256 : 0);
    EXPECT_EQ(l.heads, i % 2 == 0 ? 0 : 2);
  }
  EXPECT_EQ(states->kv.shape.n_checkpoints, (8000 + kCheckpointEvery - 1) / kCheckpointEvery);
}

// States are as large for one position as for thousands.
TEST(MemoryPlan, LargeStatesDoNotShortenTheContext) {
  model::Program p = program_of("lfm2", {.conv = 3});
  for (model::Op& op : p.ops) {
    if (op.is<model::ConvOp>()) op.as<model::ConvOp>().state.size = 1 << 20;
  }
  EngineOptions o;
  const auto whole = plan_of(p, o);
  ASSERT_TRUE(whole.ok());
  o.memory_budget = whole->budget.minimum;
  ASSERT_GT(2 * whole->kv.shape.state_bytes(), o.memory_budget / 4);
  const auto least = plan_of(p, o);
  ASSERT_TRUE(least.ok()) << least.status().message();
  EXPECT_EQ(least->context.n_ctx, whole->context.n_ctx);
}

// The automatic context is the longest, in steps, whose KV cache takes a quarter of the budget, up
// to the model's own and the default. The plan says which of these it was.
TEST(MemoryPlan, TheAutomaticContextHasAReason) {
  const auto plan_of = [](uint32_t trained, uint64_t budget, int32_t n_ctx = 0) {
    const model::Program program = program_of("llama", {.ctx = trained});
    EngineOptions options;
    options.n_threads = 1;
    options.n_ctx = n_ctx;
    options.memory_budget = budget;
    const Result<MemoryPlan> plan = plan_memory(program, kernels::best(), 1 << 16, options);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    return *plan;
  };
  EXPECT_EQ(plan_of(8192, 0, 100).context.from, ContextFrom::kOption);
  EXPECT_EQ(plan_of(8192, 8 << 20, 100).context.from, ContextFrom::kOption);
  EXPECT_EQ(plan_of(8192, 0).context.from, ContextFrom::kDefault);
  EXPECT_EQ(plan_of(8192, 0).context.n_ctx, kDefaultContext);
  EXPECT_EQ(plan_of(1000, 0).context.from, ContextFrom::kModel);
  EXPECT_EQ(plan_of(1000, 0).context.n_ctx, 1000);
  int reduced = 0;
  for (uint64_t budget = 4 << 20; budget <= 16 << 20; budget += 1 << 18) {
    SCOPED_TRACE(budget);
    const MemoryPlan plan = plan_of(8192, budget);
    const MemoryPlan longer = plan_of(8192, 0, plan.context.n_ctx + kMinContext);
    EXPECT_LE(plan.bytes.kv, budget / 4);
    if (plan.context.n_ctx == kDefaultContext) {
      EXPECT_EQ(plan.context.from, ContextFrom::kDefault);
    } else {
      EXPECT_EQ(plan.context.from, ContextFrom::kBudget);
      EXPECT_EQ(plan.context.n_ctx % kMinContext, 0);
      EXPECT_GT(longer.bytes.kv, budget / 4);
      ++reduced;
    }
  }
  EXPECT_GT(reduced, 5);
}

TEST(MemoryPlan, ImpossibleContextsAreErrors) {
  const model::Program p = program_of("llama", {});
  for (const int32_t n_ctx : {-1, static_cast<int32_t>(model::kMaxContext) + 1}) {
    EngineOptions o;
    o.n_ctx = n_ctx;
    EXPECT_EQ(plan_of(p, o).status().code(), Code::kInvalidArgument) << n_ctx;
  }
}

struct Span {
  uint8_t* at;
  uint64_t bytes;
};

// Every part of the compute buffer, with the size that its comment gives.
std::vector<Span> pieces(const ComputeBuffer& w, const model::Program& p,
                         const kernels::Table& table, const ComputeBufferShape& s) {
  std::vector<Span> out;
  const auto add = [&out](void* at, int64_t bytes) {
    if (bytes > 0) out.push_back({static_cast<uint8_t*>(at), static_cast<uint64_t>(bytes)});
  };
  int64_t widest = 0;
  for (size_t i = 0; i < p.mats.size(); ++i) {
    if (!p.by_rows(i)) widest = std::max(widest, p.mats[i].cols);
  }
  for (size_t b = 0; b < model::kBufCount; ++b) {
    const auto buf = static_cast<model::Buf>(b);
    add(w.buffer(buf), 4 * p.width[b] * (buf == model::Buf::kLogits ? s.logits_rows : s.n_batch));
  }
  add(w.q8(), s.n_batch * static_cast<int64_t>(table.q8_bytes(widest)));
  for (size_t i = 0; i < p.ropes.size(); ++i) {
    add(w.rope_table(i), int64_t{4} * s.n_batch * p.ropes[i].hp.n_rot);
  }
  add(w.table_rows(0), s.n_batch * p.mats[static_cast<size_t>(p.embedding)].row_bytes);
  if (!p.moes.empty()) {
    int64_t n_used = 0;
    for (const model::Moe& moe : p.moes) n_used = std::max<int64_t>(n_used, moe.n_used);
    add(w.experts(), 8 * s.n_batch * p.hp.n_embd);
    add(w.choices(), s.n_batch * n_used * int64_t{sizeof(Choice)});
    add(w.routed(), s.n_batch * n_used * int64_t{sizeof(Routed)});
    add(w.expert_runs(), p.hp.moe.n_expert * int64_t{sizeof(ExpertRun)});
  }
  if (s.attention_parts() > 1) {
    add(w.attention_partials(),
        4 * s.attention_parts() * p.hp.attention.n_head * (p.hp.attention.head_dim_v + 2));
  }
  return out;
}

TEST(ComputeBuffer, MeasuredSizesEqualAllocatedSizes) {
  std::mt19937 random(3);
  const kernels::Table& table = kernels::best();
  for (const model::Program& p : programs()) {
    ComputeBuffer working;
    for (int round = 0; round < 20 && !HasFailure(); ++round) {
      ComputeBufferShape s;
      s.n_ctx = 1 + static_cast<int32_t>(random() % 5000);
      s.n_batch = 1 + static_cast<int32_t>(random() % 64);
      s.n_threads = 1 + static_cast<int32_t>(random() % 4);
      s.logits_rows = 1 + static_cast<int32_t>(random() % 3);
      ASSERT_TRUE(working.allocate(p, table, s).ok());
      const ComputeBuffer::Sizes sizes = ComputeBuffer::measure(p, table, s);
      std::vector<Span> all = pieces(working, p, table, s);
      uint64_t rounded =
          round_up_to_line(16 * static_cast<size_t>(p.hp.n_embd));  // sums of pooling
      for (const Span& span : all) rounded += round_up_to_line(span.bytes);
      EXPECT_EQ(rounded, sizes.activations);
      for (int t = 0; t < s.n_threads; ++t) {
        all.push_back({working.scratch(t), sizes.scratch});
      }
      std::sort(all.begin(), all.end(), [](const Span& a, const Span& b) { return a.at < b.at; });
      for (size_t i = 0; i < all.size(); ++i) {
        EXPECT_EQ(reinterpret_cast<uintptr_t>(all[i].at) % kAlignment, 0u);
        if (i > 0) {
          EXPECT_LE(all[i - 1].at + all[i - 1].bytes, all[i].at);
        }
        std::fill_n(all[i].at, all[i].bytes, uint8_t{1});  // all of it is writable
      }
    }
  }
}

}  // namespace
}  // namespace sluice::session

// Opens a model (program, plan, allocation) and packs weights that have arrived.
#include "session/engine.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/hash.h"
#include "session/cpu_executor.h"
#include "session/nextn.h"
#include "session/planner.h"

namespace sluice::session {
namespace {

using residency::MatrixKind;

float half_to_float(uint16_t bits, bool bfloat) {
  uint32_t out = static_cast<uint32_t>(bits) << 16;
  if (!bfloat) {
    const uint32_t sign = (bits & 0x8000u) << 16;
    const uint32_t exponent = (bits >> 10) & 0x1fu;
    const uint32_t mantissa = bits & 0x3ffu;
    if (exponent == 0) {  // zero and subnormals: exact
      const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
      return sign ? -magnitude : magnitude;
    }
    const uint32_t wide = exponent == 31 ? 255u : exponent + 112u;
    out = sign | (wide << 23) | (mantissa << 13);
  }
  float value;
  std::memcpy(&value, &out, sizeof value);
  return value;
}

// Transposes [columns][rows] to [rows][columns] in place, one cycle of the permutation at a time.
void transpose(float* x, int64_t rows, int64_t columns) {
  const auto source = [=](int64_t to) { return to % rows * columns + to / rows; };
  for (int64_t first = 1; first < rows * columns; ++first) {
    int64_t lowest = source(first);
    while (lowest > first) lowest = source(lowest);
    if (lowest < first) continue;
    const float carried = x[first];
    int64_t to = first;
    for (int64_t from = source(to); from != first; from = source(from)) {
      x[to] = x[from];
      to = from;
    }
    x[to] = carried;
  }
}

// Converts a small tensor to f32 in place: its file bytes are at the end of `memory`.
void convert_vector(const model::Vec& v, uint8_t* memory, uint64_t memory_bytes) {
  float* out = reinterpret_cast<float*>(memory);
  const uint8_t* in = memory + (memory_bytes - v.bytes);
  const bool wide = v.type == static_cast<uint32_t>(gguf::TensorType::kF32);
  const bool bfloat = v.type == static_cast<uint32_t>(gguf::TensorType::kBF16);
  for (int64_t i = 0; i < v.n; ++i) {
    float value;
    if (wide) {
      std::memcpy(&value, in + i * 4, 4);
    } else {
      uint16_t bits;
      std::memcpy(&bits, in + i * 2, 2);
      value = half_to_float(bits, bfloat);
    }
    out[i] = value + v.add;
  }
  if (v.columns > 0) transpose(out, v.n / v.columns, v.columns);
}

// Control tokens have no text here; grammars refer to them by name.
class TokenizerSource final : public grammar::TokenSource {
 public:
  explicit TokenizerSource(const tokenizer::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  [[nodiscard]] int32_t n_tokens() const override { return tokenizer_.n_vocab(); }
  [[nodiscard]] std::string bytes(grammar::Token token) const override {
    return tokenizer_.is_control(token) ? std::string() : tokenizer_.token_bytes(token);
  }
  [[nodiscard]] std::string_view name(grammar::Token token) const override {
    return tokenizer_.piece(token);
  }
  [[nodiscard]] bool ends(grammar::Token token) const override {
    return tokenizer_.is_end_of_generation(token);
  }

 private:
  const tokenizer::Tokenizer& tokenizer_;
};

}  // namespace

Result<Inspection> inspect(const gguf::Header& header, const EngineOptions& options) {
  Inspection out;
  const bool named = options.kernels != nullptr && options.kernels[0] != '\0';
  const char* name = named ? options.kernels : kernels::best().name;
  out.table = kernels::by_name(name);
  if (out.table == nullptr) {
    return error(Code::kInvalidArgument,
                 "the instruction set \"%.32s\" is unknown or not available", name);
  }
  Result<model::Program> program = model::build_program(header, options.approximate.skip);
  if (!program.ok()) return program.status();
  out.program = std::move(*program);
  SLUICE_RETURN_IF_ERROR(approximate(header, options, *out.table, &out.program, &out.modes));
  if constexpr (model::kNextn) {
    if (options.nextn) SLUICE_RETURN_IF_ERROR(check_nextn(options));
    if (options.nextn) SLUICE_RETURN_IF_ERROR(model::add_nextn(header, &out.program));
  }
  for (const model::Mat& m : out.program.mats) {
    if (!out.table->supports(m.type)) {
      const auto type = static_cast<gguf::TensorType>(m.type);
      return error(Code::kNotInBuild, "the tensor %s has the type %s, which \"%s\" cannot run",
                   m.name.c_str(), gguf::type_info(type)->name, out.table->name);
    }
  }
  Result<AdapterSet> adapters = AdapterSet::bind(out.program, *out.table, options.adapters);
  if (!adapters.ok()) return adapters.status();
  out.adapters = std::move(*adapters);
  Result<MemoryPlan> plan = plan_memory(out.program, *out.table, tokenizer::estimate_memory(header),
                                        options, out.adapters.needs());
  if (!plan.ok()) return plan.status();
  out.plan = std::move(*plan);
  return out;
}

Result<std::unique_ptr<Engine>> Engine::open(const gguf::Header& header,
                                             const EngineOptions& options) {
  Result<Inspection> found = inspect(header, options);
  if (!found.ok()) return found.status();
  std::unique_ptr<Engine> engine(new Engine);
  engine->program_ = std::move(found->program);
  engine->modes_ = std::move(found->modes);
  engine->plan_ = std::move(found->plan);
  engine->table_ = found->table;
  engine->adapters_ = std::move(found->adapters);
  Result<std::unique_ptr<tokenizer::Tokenizer>> tokenizer = tokenizer::Tokenizer::create(header);
  if (!tokenizer.ok()) return tokenizer.status();
  engine->tokenizer_ = std::move(*tokenizer);
  if (engine->tokenizer_->n_vocab() > engine->program_.hp.n_vocab) {
    return error(Code::kBadTokenizer, "the vocabulary has %d tokens but token_embd.weight has %lld",
                 engine->tokenizer_->n_vocab(),
                 static_cast<long long>(engine->program_.hp.n_vocab));
  }
  const MemoryPlan& plan = engine->plan_;
  engine->options_ = options;
  engine->options_.kernels = "";  // points to the caller's string
  engine->options_.adapters = {};
  engine->options_.approximate.skip = {};
  engine->options_.n_ctx = plan.context.n_ctx;
  engine->options_.context_from = plan.context.from;
  engine->options_.kv = plan.kv.types;
  if (plan.kv.layout.evicts()) engine->options_.kv_policy.capacity = plan.kv.layout.positions;
  engine->options_.n_batch = plan.batch.n_batch;
  engine->options_.n_threads = plan.threads.n_threads;
  engine->options_.min_threads = 0;  // they are started
  engine->options_.n_checkpoints = plan.kv.shape.n_checkpoints;
  engine->options_.draft_max = plan.batch.draft_max;
  SLUICE_RETURN_IF_ERROR(engine->adapters_.load(*engine->table_, options.adapters));
  engine->fingerprint_ = fingerprint_of(header, engine->program_, plan);
  engine->pool_ = options.pool;
  if (engine->pool_ == nullptr || engine->pool_->n_threads() != plan.threads.n_threads) {
    engine->own_pool_ = std::make_unique<ThreadPool>(plan.threads.n_threads);
    engine->pool_ = engine->own_pool_.get();
  }
  engine->map_items();
  SLUICE_RETURN_IF_ERROR(
      engine->working_.allocate(engine->program_, *engine->table_, plan.working()));
  SLUICE_RETURN_IF_ERROR(engine->sequences_.init(plan.kv.shape, plan.sessions.n_sessions));
  for (const auto& mode : engine->modes_) mode->attach(*engine);
  engine->executor_ = std::make_unique<CpuExecutor>(*engine);
  if constexpr (model::kNextn) {
    if (engine->program_.nextn.on()) {
      Result<std::unique_ptr<NextnHead>> head = NextnHead::create(*engine);
      if (!head.ok()) return head.status();
      engine->nextn_ = std::move(*head);
    }
  }
  SLUICE_RETURN_IF_ERROR(
      engine->residency_.init(plan.weights, options.direct_reads, plan.threads.n_threads));
  engine->weight_check_.reset(plan.weights.units.size());
  return engine;
}

Engine::~Engine() = default;

void Engine::compute_with(std::unique_ptr<Executor> executor) {
  executor_ = std::move(executor);
}

Result<const grammar::Vocabulary*> Engine::vocabulary() {
  if (plan_.budget.bytes > 0 && plan_.bytes.grammar == 0) {
    return error(Code::kBudgetTooSmall,
                 "structured output is off: load the model without structuredOutput: false, or "
                 "start the server without --no-structured-output");
  }
  if (!vocabulary_) {
    token_source_ = std::make_unique<TokenizerSource>(*tokenizer_);
    auto made = grammar::Vocabulary::create(*token_source_);
    if (!made.ok()) return made.status();
    vocabulary_ = std::move(*made);
  }
  return static_cast<const grammar::Vocabulary*>(vocabulary_.get());
}

Status Engine::set_memory_budget(uint64_t budget) {
  if (!failure_.ok()) return failure_;
  if (residency_.under_way() > 0) {
    return error(Code::kInvalidArgument, "the budget cannot change while reads are pending");
  }
  return replan(budget, adapters_.needs());
}

Status Engine::lend(uint64_t bytes) {
  if (bytes == lent_) return {};
  options_.reserve += bytes - lent_;
  const uint64_t before = std::exchange(lent_, bytes);
  const Status status = set_memory_budget(plan_.budget.bytes);
  if (!status.ok()) {
    lent_ = before;
    options_.reserve -= bytes - before;
  }
  return status;
}

namespace {
// While one set replaces the other.
AdapterNeeds both(const AdapterNeeds& before, const AdapterNeeds& after) {
  return {before.bytes + after.bytes, std::max(before.scratch, after.scratch)};
}
}  // namespace

uint64_t Engine::budget_for(std::span<const adapter::Source> sources) const {
  const Result<AdapterSet> next = AdapterSet::bind(program_, *table_, sources);
  if (!next.ok()) return 0;
  return Planner(program_, *table_, plan_.bytes.tokenizer, both(adapters_.needs(), next->needs()))
      .smallest(options_);
}

Status Engine::set_adapters(std::span<const adapter::Source> sources) {
  if (!failure_.ok()) return failure_;
  if (pass_under_way_ || residency_.under_way() > 0) {
    return error(Code::kInvalidArgument, "the adapters cannot change during a forward pass");
  }
  Result<AdapterSet> next = AdapterSet::bind(program_, *table_, sources);
  if (!next.ok()) return next.status();
  SLUICE_RETURN_IF_ERROR(replan(plan_.budget.bytes, both(adapters_.needs(), next->needs())));
  const Status loaded = next->load(*table_, sources);
  if (loaded.ok()) adapters_ = std::move(*next);
  const Status settled = replan(plan_.budget.bytes, adapters_.needs());
  return loaded.ok() ? settled : loaded;
}

Fingerprint Engine::fingerprint(uint64_t adapters) const {
  Fingerprint out = fingerprint_;
  out[Fingerprint::kAdapters] = adapters;
  return out;
}

Result<MemoryPlan> Engine::plan_for(uint64_t budget, const AdapterNeeds& adapters) const {
  EngineOptions options = options_;
  options.memory_budget = budget;
  return plan_memory(program_, *table_, plan_.bytes.tokenizer, options, adapters);
}

// Makes and adopts a new plan for the same sequences.
Status Engine::replan(uint64_t budget, const AdapterNeeds& adapters) {
  Result<MemoryPlan> plan = plan_for(budget, adapters);
  if (!plan.ok()) return plan.status();
  MemoryPlan before = plan_;
  // WebAssembly memory is not returned. So that what weights make way for finds it in one piece,
  // pinned ones go together, and are read again.
  const bool makes_way =
      plan->bytes.grammar > before.bytes.grammar || plan->bytes.reserve > before.bytes.reserve;
  if (!platform::kDiscards && makes_way && plan->weights.streamed_bytes > 0) {
    residency_.drop_pins();
  }
  const Status status = adopt(std::move(*plan));
  if (!status.ok()) failure_ = adopt(std::move(before));
  return status;
}

Status Engine::adopt(MemoryPlan plan) {
  plan_ = std::move(plan);
  ++replans_;
  costs_.clear();
  if constexpr (model::kNextn) {
    if (nextn_ != nullptr) nextn_->costs().clear();
  }
  SLUICE_RETURN_IF_ERROR(working_.allocate(program_, *table_, plan_.working()));
  SLUICE_RETURN_IF_ERROR(residency_.replan(plan_.weights));
  weight_check_.reset(plan_.weights.units.size());
  return {};
}

void Engine::map_items() {
  item_mat_.assign(plan_.weights.first_unit.size(), -1);
  item_vec_.assign(plan_.weights.first_unit.size(), -1);
  for (size_t i = 0; i < plan_.items.mat.size(); ++i) {
    if (plan_.items.mat[i] >= 0) {
      item_mat_[static_cast<size_t>(plan_.items.mat[i])] = static_cast<int32_t>(i);
    }
  }
  for (size_t i = 0; i < plan_.items.vec.size(); ++i) {
    if (plan_.items.vec[i] >= 0) {
      item_vec_[static_cast<size_t>(plan_.items.vec[i])] = static_cast<int32_t>(i);
    }
  }
}

const float* Engine::vec(int32_t index) const {
  const int32_t item = plan_.items.vec[static_cast<size_t>(index)];
  const uint32_t unit = residency_.first_unit(item);
  return residency_.ready(unit) ? reinterpret_cast<const float*>(residency_.data(unit)) : nullptr;
}

void Engine::settle_unit(uint32_t unit, int thread) {
  const residency::Unit& u = residency_.plan().units[unit];
  uint8_t* memory = residency_.data(unit);
  if (u.kind == MatrixKind::kVector) {
    const int32_t index = item_vec_[static_cast<size_t>(u.matrix)];
    const model::Vec& v = program_.vecs[static_cast<size_t>(index)];
    const uint8_t* in = memory + (u.packed_bytes - v.bytes);
    weight_check_.look(unit, static_cast<kernels::Type>(v.type), in, v.n);
    convert_vector(v, memory, u.packed_bytes);
    return;
  }
  const model::Mat& m =
      program_.mats[static_cast<size_t>(item_mat_[static_cast<size_t>(u.matrix)])];
  if (u.plain) {
    weight_check_.look(unit, m.type, memory, u.rows * m.cols);
    return;
  }
  // Packed groups grow from the front towards the file bytes at the end. A group's file bytes are
  // copied aside first, so packing never overwrites unread bytes.
  const uint8_t* from = memory + (u.packed_bytes - u.bytes);
  const size_t group_bytes = table_->packed_group_bytes(m.type, m.cols);
  uint8_t* aside = working_.scratch(thread);
  uint8_t* to = memory;
  for (int64_t row = 0; row < u.rows; row += table_->row_group) {
    const int64_t rows = std::min<int64_t>(table_->row_group, u.rows - row);
    std::memcpy(aside, from + row * m.row_bytes, static_cast<size_t>(rows * m.row_bytes));
    weight_check_.look(unit, m.type, aside, rows * m.cols);
    table_->pack_group(m.type, aside, static_cast<int32_t>(rows), m.cols, to);
    to += group_bytes;
  }
}

void Engine::pack_loaded() {
  const std::span<const uint32_t> arrived = residency_.arrived();
  if (arrived.empty()) return;
  pool_->parallel_for(static_cast<int64_t>(arrived.size()), [&](int64_t task, int thread) {
    settle_unit(arrived[static_cast<size_t>(task)], thread);
  });
  for (const uint32_t unit : arrived) weight_check_.done(unit);
  residency_.mark_arrived_ready();
  settle_check();
}

void Engine::settle_check() {
  if (weight_check_.bad() == residency::kNoUnit) return;
  const residency::Unit& u = residency_.plan().units[weight_check_.bad()];
  const size_t item = static_cast<size_t>(u.matrix);
  const std::string& name = u.kind == MatrixKind::kVector
                                ? program_.vecs[static_cast<size_t>(item_vec_[item])].name
                                : program_.mats[static_cast<size_t>(item_mat_[item])].name;
  refuse_weights(name, u.row0, u.row0 + u.rows - 1);
}

void Engine::refuse_weights(const std::string& tensor, int64_t first, int64_t last) {
  if (!failure_.ok()) return;
  std::string rows = first == last ? "row " : "rows " + std::to_string(first) + " to ";
  rows += std::to_string(last);
  failure_ = error(Code::kBadWeights, "the tensor %s has a value that is not finite (%s)",
                   tensor.c_str(), rows.c_str());
}

uint64_t Engine::begin_pass() {
  pass_under_way_ = true;
  pass_began_ms_ = monotonic_ms();
  pins_absent_ = residency_.pins_pending();
  return ++last_pass_;
}

double Engine::pass_ms() const {
  return residency_.pins_pending() == pins_absent_ ? monotonic_ms() - pass_began_ms_ : 0;
}

bool Engine::poll() {
  const bool any = residency_.poll();
  pack_loaded();
  return any;
}

bool Engine::help_reading() {
  std::array<uint32_t, 8> numbers{};
  std::array<bool, 8> good{};
  const size_t max_requests = std::min(numbers.size(), static_cast<size_t>(pool_->n_threads()));
  const size_t n = residency_.take_requests({numbers.data(), max_requests});
  if (n == 0) return false;
  pool_->parallel_for(static_cast<int64_t>(n), [&](int64_t task, int) {
    const size_t i = static_cast<size_t>(task);
    const residency::FillRequest& r =
        residency_.queue().ring[numbers[i] % residency::kFillCapacity];
    uint8_t* dst = reinterpret_cast<uint8_t*>(static_cast<uintptr_t>(r.dst));
    good[i] = options_.reader->read(r.file, r.offset, {dst, r.length});
  });
  for (size_t i = 0; i < n; ++i) residency_.finish_request(numbers[i], good[i]);
  return true;
}

}  // namespace sluice::session

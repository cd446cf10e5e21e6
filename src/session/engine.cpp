// Opens a model: program, plan, allocation.
#include "session/engine.h"

#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "session/cpu_executor.h"
#include "session/nextn.h"
#include "session/planner.h"

namespace sluice::session {
namespace {

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
  engine->weights_.start(*engine->table_, *engine->pool_, options.reader);
  SLUICE_RETURN_IF_ERROR(
      engine->working_.allocate(engine->program_, *engine->table_, plan.working()));
  SLUICE_RETURN_IF_ERROR(engine->sequences_.init(plan.kv.shape, plan.sessions.n_sessions));
  engine->context_.emplace(ExecutionContext{
      engine->program_, engine->plan_, *engine->table_, *engine->pool_, engine->working_,
      engine->weights_, engine->adapters_, engine->modes_, engine->approximate_, engine->nextn_,
      plan.batch.n_batch, engine->passes_.times()});
  engine->passes_.times().measure(options.time_breakdown);
  for (const auto& mode : engine->modes_) mode->attach(*engine->context_);
  engine->executor_ = std::make_unique<CpuExecutor>(*engine->context_);
  if constexpr (model::kNextn) {
    if (engine->program_.nextn.on()) {
      Result<std::unique_ptr<NextnHead>> head =
          NextnHead::create(*engine->context_, engine->passes_, engine->executor_);
      if (!head.ok()) return head.status();
      engine->nextn_ = std::move(*head);
    }
  }
  SLUICE_RETURN_IF_ERROR(engine->weights_.allocate(options.direct_reads));
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
  if (!failure().ok()) return failure();
  if (residency().under_way() > 0) {
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
  if (!failure().ok()) return failure();
  if (passes_.under_way() || residency().under_way() > 0) {
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
    residency().drop_pins();
  }
  const Status status = adopt(std::move(*plan));
  if (!status.ok()) weights_.fail(adopt(std::move(before)));
  return status;
}

Status Engine::adopt(MemoryPlan plan) {
  plan_ = std::move(plan);
  costs_.clear();
  if constexpr (model::kNextn) {
    if (nextn_ != nullptr) nextn_->costs().clear();
  }
  SLUICE_RETURN_IF_ERROR(working_.allocate(program_, *table_, plan_.working()));
  return weights_.replan();
}

}  // namespace sluice::session

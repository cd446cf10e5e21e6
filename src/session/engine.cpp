// Opens a model: program, plan, allocation.
#include "session/engine.h"

#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "session/cpu_executor.h"
#include "session/nextn.h"
#include "session/planner.h"

namespace sluice::session {
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
  engine->vocabulary_.emplace(*engine->tokenizer_, engine->plan_);
  engine->context_.emplace(SessionContext{
      {engine->program_, engine->plan_, *engine->table_, *engine->pool_, engine->working_,
       engine->weights_, engine->adapters_, engine->modes_, engine->approximate_, engine->nextn_,
       plan.batch.n_batch, engine->passes_.times()},
      *engine->tokenizer_,
      *engine->vocabulary_,
      engine->passes_,
      engine->executor_,
      engine->sequences_,
      engine->costs_,
      engine->draft_state_,
      engine->fingerprint_});
  engine->replanner_.emplace(engine->program_, engine->plan_, engine->adapters_, *engine->context_,
                             options);
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

}  // namespace sluice::session

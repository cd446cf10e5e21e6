// Loading a model: header, adapters, inspect, open.
#include <unistd.h>

#include <algorithm>

#include "base/round_up.h"
#include "bindings/engine_binding.h"
#include "generate/draft_model.h"
#include "session/option_texts.h"
#include "session/planner.h"
#include "session/speed_estimate.h"

namespace sluice::bindings {
namespace {

constexpr uint64_t kPageBytes = 65536;

// Bytes of the budget to leave free. Besides the heap, the tab holds compiled code and a JavaScript
// engine per worker: up to 48 MB because of this package, and at least 16 MB to generate a token.
uint64_t beside_heap(uint64_t budget) {
  constexpr uint64_t kFree = 32 << 20, kMax = 48 << 20;
  return budget > kFree ? std::min({kMax, (budget - kFree) / 2, budget / 4}) : 0;
}

// Ends all work, so that the engine can be planned again.
void quiesce(EngineBinding& b) {
  for (Slot& slot : b.slots()) b.drop_answer(slot);
  b.embedder.reset();
  b.engine->residency().collect();
}

// Moves budget from the draft model to the model, so that it has `needed` bytes.
Status make_room(EngineBinding& b, uint64_t needed) {
  session::Engine& draft = *b.draft->engine;
  const Result<session::MemoryPlan> own = draft.replanner().plan_for(0);
  if (!own.ok()) return own.status();
  const uint64_t budget = b.engine->plan().budget.bytes + draft.plan().budget.bytes;
  if (budget < needed + own->budget.minimum) {
    // The model's base has this budget's spare bytes.
    session::EngineOptions options;
    options.page_bytes = kPageBytes;
    options.spare = beside_heap;
    const uint64_t spare = round_up(beside_heap(budget), kPageBytes);
    return generate::pair_too_small(
        budget, session::smallest_with_spare(needed + own->budget.minimum - spare, options));
  }
  const uint64_t share = generate::draft_share(budget, needed, own->budget.minimum,
                                               round_up(own->total(), kPageBytes));
  draft.residency().collect();
  SLUICE_RETURN_IF_ERROR(draft.replanner().set_memory_budget(share));
  return b.engine->replanner().set_memory_budget(budget - share);
}

Result<session::EngineOptions> engine_options(EngineBinding& b, const val& o) {
  session::EngineOptions options;
  const std::string kv_type = text_or_none(o, "kvType"), kv_policy = text_or_none(o, "kvPolicy"),
                    head_clusters = text_or_none(o, "headClusters");
  SLUICE_RETURN_IF_ERROR(
      session::apply({.kv_type = kv_type,
                      .kv_policy = kv_policy,
                      .head_clusters = head_clusters,
                      .kv_sinks = static_cast<int32_t>(number_or(o, "kvSinks", -1)),
                      .kv_capacity = static_cast<int32_t>(number_or(o, "kvCapacity", 0))},
                     &options));
  // The budget is the maximum of the wasm memory, in whole pages. Everything below the heap's end
  // (stack, constants, the header just parsed) already counts.
  options.page_bytes = kPageBytes;
  options.memory_budget = static_cast<uint64_t>(number_or(o, "memoryBudget", 0));
  // Less than a page is not enough, but 0 would be no budget.
  if (options.memory_budget > options.page_bytes) {
    options.memory_budget -= options.memory_budget % options.page_bytes;
  }
  const uint64_t base = b.draft ? std::max(b.base_bytes, b.draft->base_bytes) : b.base_bytes;
  options.base_bytes = base + static_cast<uint64_t>(number_or(o, "held", 0));
  options.approximate.skip_layers_ratio = number_or(o, "skipLayersRatio", 0);
  options.structured_output = is_true(o, "structuredOutput");
  options.time_breakdown = is_true(o, "timeBreakdown");
  options.draft_max = is_true(o, "draft") ? -1 : 0;
  options.parallel = static_cast<int32_t>(number_or(o, "parallel", 1));
  options.spare = beside_heap;
  options.min_batch = b.min_batch;
  options.n_ctx = static_cast<int32_t>(number_or(o, "contextLength", 0));
#ifdef SLUICE_GPU
  if (is_true(o, "kvOnGpu")) options.kv_rows = 0;
#endif
  options.context_from = session::parse_context_from(text_or_none(o, "contextFrom"));
  options.min_budget = static_cast<uint64_t>(number_or(o, "minBudget", 0));
  options.n_threads = static_cast<int32_t>(number_or(o, "threads", 0));
  options.min_threads = static_cast<int32_t>(number_or(o, "minThreads", 0));
  options.reader = &b.shared_files;
  options.adapters = b.sources;
  if (is_true(o, "directReads")) options.direct_reads = residency::DirectReads::kOnceLocal;
  b.kernels = text_or_none(o, "kernels");
  options.kernels = b.kernels.c_str();
  return options;
}

Result<generate::PairOptions> pair_options(EngineBinding& b, const val& o) {
  const Result<session::EngineOptions> options = engine_options(b, o);
  if (!options.ok()) return options.status();
  if (!b.draft) return generate::PairOptions{.model = *options};
  // The threads have no access to the draft model's files, so it cannot use direct reads.
  Result<generate::PairOptions> pair =
      generate::share_budget(b.opener->header(), *options, b.draft->opener->header(), 0);
  if (pair.ok()) pair->draft.direct_reads = residency::DirectReads::kNone;
  return pair;
}

}  // namespace

void source(EngineBinding& b, const std::string& address, const std::string& names,
            unsigned described) {
  open::Source source{address, false, {}, described};
  for (size_t at = 0, end; at < names.size(); at = end + 1) {  // each name ends with a '/'
    end = names.find('/', at);
    source.names.push_back(names.substr(at, end - at));
  }
  b.opener.reset(new open::Opener(open::Opener::of_file(std::move(source))));
}

val need(EngineBinding& b) {
  const Result<open::FileRequest> need = b.opener->need();
  if (!need.ok()) return b.fail(need.status()), val::null();
  if (need->want == open::FileRequestKind::kDone) b.note_base();
  val out = val::object();
  put(out, "want", static_cast<double>(need->want));
  put(out, "file", need->file);
  put(out, "choice", need->choice);
  put(out, "offset", static_cast<double>(need->offset));
  put(out, "length", static_cast<double>(need->length));
  put(out, "name", need->name);
  return out;
}

unsigned reserve(EngineBinding& b, unsigned bytes) {
  const Result<std::span<uint8_t>> place = b.opener->reserve(bytes);
  if (!place.ok()) return b.fail(place.status()), 0;
  return static_cast<unsigned>(reinterpret_cast<uintptr_t>(place->data()));
}

bool adapter(EngineBinding& b, const val& bytes, float scale) {
  auto read = std::make_unique<adapter::Adapter>();
  const uint64_t size = length_of(bytes);
  AlignedBuffer prefix;
  uint64_t had = 0, need = EngineBinding::kStageBytes;
  for (;;) {
    need = std::min({std::max(need, had + 1), size, adapter::kMaxDirectory});
    if (!b.copy_bytes(bytes.call<val>("subarray", 0, static_cast<double>(need)), &prefix)) {
      return false;
    }
    const auto parsed =
        adapter::parse_gguf({prefix.as<uint8_t>(), prefix.size()}, size, read.get());
    if (!parsed.ok()) return b.fail(parsed.status());
    if (parsed->done) break;
    if (need == had) {
      return b.fail(
          sluice::error(Code::kBadHeader, "the adapter's header is invalid or truncated"));
    }
    had = need;
    need = parsed->need_bytes;
  }
  const auto copy = [bytes](uint64_t offset, std::span<uint8_t> out) {
    const double from = static_cast<double>(offset), n = static_cast<double>(out.size());
    copy_in(bytes.call<val>("subarray", from, from + n), out);
    return Status();
  };
  b.sources.push_back({read.get(), scale, copy});
  b.adapters.push_back(std::move(read));
  prefix = {};
  if (b.opener) b.note_base();
  return true;
}

bool set_adapters(EngineBinding& b) {
  quiesce(b);
  const Status status = b.engine->replanner().set_adapters(b.sources);
  if (!b.draft || status.code() != Code::kBudgetTooSmall) return b.checked(status);
  return b.checked(make_room(b, b.engine->replanner().budget_for(b.sources))) &&
         b.checked(b.engine->replanner().set_adapters(b.sources));
}

bool reserve_structured_output(EngineBinding& b) {
  quiesce(b);
  b.engine->replanner().plan_structured_output(true);
  Status status = b.engine->replanner().set_memory_budget(b.engine->plan().budget.bytes);
  if (b.draft && status.code() == Code::kBudgetTooSmall) {
    const Result<session::MemoryPlan> plan = b.engine->replanner().plan_for(0);
    status = plan.ok() ? make_room(b, plan->budget.minimum) : plan.status();
  }
  if (!status.ok()) b.engine->replanner().plan_structured_output(false);
  return b.checked(status);
}

void forget_adapters(EngineBinding& b) {
  b.sources.clear();
  b.adapters.clear();
}

EngineBinding* draft(EngineBinding& b) {
  if (!b.draft) b.draft = std::make_unique<EngineBinding>();
  return b.draft.get();
}

std::string inspect(EngineBinding& b, const val& options) {
  val out = val::object();
  const auto refuse = [&out, &b](const Status& why) {
    b.fail(why);
    put(out, "error", last_error(b));
    return to_text(out);
  };
  const Result<session::EngineOptions> given = engine_options(b, options);
  if (!given.ok()) return refuse(given.status());
  const auto sink = [&out](const char* section, const char* key,
                           const session::ReportValue& value) {
    if (section == nullptr) return put(out, key, value);
    if (field(out, section).isUndefined()) put(out, section, val::object());
    val part = field(out, section);
    put(part, key, value);
  };
  const gguf::Header* draft = b.draft ? &b.draft->opener->header() : nullptr;
  const Result<session::Inspection> found =
      generate::inspect(b.opener->header(), *given, draft, 0, sink);
  if (!found.ok()) return refuse(found.status());
  if (const double rate = number_or(options, "storeBandwidth", -1); rate >= 0) {
    const bool shared = is_true(options, "directReads") && rate > 1e6 * residency::kMemorySpeed;
    session::report_speed(*found, {rate, 1, shared}, sink);
  }
  val layers = val::array();
  for (const uint32_t unit : session::layer_units(*found)) push(layers, val(unit));
  val plan = field(out, "plan");
  put(plan, "layerUnits", layers);
  return to_text(out);
}

bool open(EngineBinding& b, const val& options) {
  const Result<generate::PairOptions> with = pair_options(b, options);
  if (!with.ok()) return b.fail(with.status());
  if (!b.checked(b.start(with->model))) return false;
  if (!b.draft) return true;
  b.pair_minimum = with->minimum;
  session::EngineOptions for_draft = with->draft;
  for_draft.pool = &b.engine->pool();
  for_draft.n_threads = b.engine->plan().threads.n_threads;
  const Status started = b.draft->start(for_draft);
  if (!started.ok()) return b.fail(generate::of_draft(started));
  b.draft_source = std::make_unique<generate::DraftModel>(b.draft->session());
  return b.checked(
      generate::check_same_vocabulary(b.engine->tokenizer(), b.draft->engine->tokenizer()));
}

Status EngineBinding::start(const session::EngineOptions& options) {
  Result<std::unique_ptr<session::Engine>> opened =
      session::Engine::open(opener->header(), options);
  if (!opened.ok()) return opened.status();
  engine = std::move(*opened);
  all_slots = std::make_unique<Slot[]>(static_cast<size_t>(engine->plan().sessions.parallel));
  slot = all_slots.get();
  if (engine->plan().sessions.parallel > 1) {
    batches = std::make_unique<generate::Scheduler>(engine->context());
  }
  for (Slot& each : slots()) {
    Result<std::unique_ptr<session::Session>> session = session::Session::create(engine->context());
    if (!session.ok()) return session.status();
    each.session = std::move(*session);
  }
  opener.reset();
  return {};
}

// Notes the heap size after the header was parsed, plus 128 KiB that malloc loses to alignment and
// to the holes that the header leaves.
void EngineBinding::note_base() {
  base_bytes = reinterpret_cast<uintptr_t>(sbrk(0)) + (128 << 10);
}

}  // namespace sluice::bindings

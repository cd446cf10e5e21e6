// The engine's memory, statistics and unit states.
#include "bindings/engine_binding.h"

namespace sluice::bindings {

val last_error(EngineBinding& b) {
  val out = val::object();
  put(out, "code", std::string(code_name(b.error.code())));
  put(out, "message", std::string(b.error.message()));
  return out;
}

std::string memory(EngineBinding& b) {
  val out = val::object();
  session::report_plan(b.engine->plan(), b.draft ? &b.draft->engine->plan() : nullptr,
                       b.pair_minimum,
                       [&out](const char*, const char* key, const session::ReportValue& value) {
                         put(out, key, value);
                       });
  put(out, "heap", static_cast<double>(__builtin_wasm_memory_size(0)) * 65536.0);
  return to_text(out);
}

std::string stats(EngineBinding& b) {
  const residency::Residency& r = b.engine->residency();
  const auto drafts = [&b](int32_t generate::Counts::*count) {
    int32_t sum = b.draft_counts.*count;
    for (const Slot& slot : b.slots()) sum += slot.answer ? slot.answer->counts().*count : 0;
    return sum;
  };
  const session::Batcher::Counts batches =
      b.scheduler() ? b.scheduler()->counts() : session::Batcher::Counts();
  val out = val::object();
  put(out, "drafted", drafts(&generate::Counts::drafted));
  put(out, "accepted", drafts(&generate::Counts::accepted));
  put(out, "passes", static_cast<double>(b.passes + batches.passes));
  put(out, "tokens", static_cast<double>(b.tokens + batches.tokens));
  put(out, "steps", static_cast<double>(b.steps));
  put(out, "blocked", static_cast<double>(b.blocked));
  put(out, "computeMs", b.compute_ms + batches.compute_ms);
  put(out, "fills", static_cast<double>(r.counts().fills));
  put(out, "filledBytes", static_cast<double>(r.counts().filled_bytes));
  put(out, "ownBytes", static_cast<double>(r.counts().own_bytes));
  put(out, "expertHits", static_cast<double>(r.counts().expert_hits));
  put(out, "expertMisses", static_cast<double>(r.counts().expert_misses));
  put(out, "expertBytesRead", static_cast<double>(r.counts().expert_missed_bytes));
  put(out, "filledAtFirstUse", static_cast<double>(r.counts().filled_at_first_use));
  put(out, "embeddingCacheHits",
      static_cast<double>(b.engine->working().embedding_row_cache(0).found()));
  put(out, "embeddingCacheMisses",
      static_cast<double>(b.engine->working().embedding_row_cache(0).read()));
  const session::HeadCounts& head = b.engine->approximate().head;
  put(out, "clusteredHeadRows", static_cast<double>(head.rows));
  put(out, "clusteredHeadKnown", static_cast<double>(head.known));
  put(out, "clusteredHeadProducts", static_cast<double>(head.products));
  put(out, "bytesPerPass", static_cast<double>(r.plan().streamed_bytes));
  put(out, "pinsPending", static_cast<double>(r.pins_pending()));
  if (const session::TimeBreakdown& times = b.engine->passes().times(); times.on()) {
    val parts = val::object();
    for (size_t i = 0; i < session::kTimeParts; ++i) {
      put(parts, session::kTimePartNames[i], times.sums().parts[i]);
    }
    put(parts, "total", times.sums().total);
    put(out, "timeBreakdown", parts);
  }
  return to_text(out);
}

val unit_states(EngineBinding& b) {
  const residency::Residency& r = b.engine->residency();
  const size_t n = r.plan().units.size();
  b.states.resize(n);
  for (uint32_t u = 0; u < n; ++u) {
    const bool pinned = r.plan().units[u].pinned;
    switch (r.state(u)) {
      case residency::UnitState::kAbsent:
        b.states[u] = pinned ? 4 : 0;
        break;
      case residency::UnitState::kLoading:
        b.states[u] = 1;
        break;
      case residency::UnitState::kArrived:
      case residency::UnitState::kReady:
        b.states[u] = pinned ? 3 : 2;
        break;
    }
  }
  if (n > 0 && b.engine->passes().under_way()) b.states[r.cursor_unit()] |= 16;
  return copy_out(std::span<const uint8_t>(b.states));
}

void EngineBinding::begin_counting() {
  pass_ms = 0;
  pass_tokens = 0;
}

// Adds up pass statistics. A session restarts its counts with each forward pass.
void EngineBinding::count() {
  const session::PassStats& stats = session().stats();
  if (stats.compute_ms < pass_ms || stats.tokens < pass_tokens) begin_counting();
  if (stats.tokens > 0 && pass_tokens == 0) ++passes;
  compute_ms += stats.compute_ms - pass_ms;
  tokens += stats.tokens - pass_tokens;
  pass_ms = stats.compute_ms;
  pass_tokens = stats.tokens;
}

}  // namespace sluice::bindings

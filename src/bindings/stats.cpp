// The engine's memory, statistics and unit states.
#include "bindings/engine_binding.h"

namespace sluice::bindings {

val EngineBinding::error() const {
  val out = val::object();
  put(out, "code", std::string(code_name(error_.code())));
  put(out, "message", std::string(error_.message()));
  return out;
}

std::string EngineBinding::memory() {
  val out = val::object();
  session::report_plan(engine_->plan(), draft_ ? &draft_->engine_->plan() : nullptr, pair_minimum_,
                       [&out](const char*, const char* key, const session::ReportValue& value) {
                         put(out, key, value);
                       });
  put(out, "heap", static_cast<double>(__builtin_wasm_memory_size(0)) * 65536.0);
  return to_text(out);
}

std::string EngineBinding::stats() {
  const residency::Residency& r = engine_->residency();
  const auto drafts = [this](int32_t generate::Counts::*count) {
    int32_t sum = draft_counts_.*count;
    for (const Slot& slot : slots()) sum += slot.answer ? slot.answer->counts().*count : 0;
    return sum;
  };
  const session::Batcher::Counts batches =
      scheduler() ? scheduler()->counts() : session::Batcher::Counts();
  val out = val::object();
  put(out, "drafted", drafts(&generate::Counts::drafted));
  put(out, "accepted", drafts(&generate::Counts::accepted));
  put(out, "passes", static_cast<double>(passes_ + batches.passes));
  put(out, "tokens", static_cast<double>(tokens_ + batches.tokens));
  put(out, "steps", static_cast<double>(steps_));
  put(out, "blocked", static_cast<double>(blocked_));
  put(out, "computeMs", compute_ms_ + batches.compute_ms);
  put(out, "fills", static_cast<double>(r.counts().fills));
  put(out, "filledBytes", static_cast<double>(r.counts().filled_bytes));
  put(out, "ownBytes", static_cast<double>(r.counts().own_bytes));
  put(out, "expertHits", static_cast<double>(r.counts().expert_hits));
  put(out, "expertMisses", static_cast<double>(r.counts().expert_misses));
  put(out, "expertBytesRead", static_cast<double>(r.counts().expert_missed_bytes));
  put(out, "filledAtFirstUse", static_cast<double>(r.counts().filled_at_first_use));
  put(out, "embeddingCacheHits",
      static_cast<double>(engine_->working().embedding_row_cache(0).found()));
  put(out, "embeddingCacheMisses",
      static_cast<double>(engine_->working().embedding_row_cache(0).read()));
  const session::HeadCounts& head = engine_->approximate().head;
  put(out, "clusteredHeadRows", static_cast<double>(head.rows));
  put(out, "clusteredHeadKnown", static_cast<double>(head.known));
  put(out, "clusteredHeadProducts", static_cast<double>(head.products));
  put(out, "bytesPerPass", static_cast<double>(r.plan().streamed_bytes));
  put(out, "pinsPending", static_cast<double>(r.pins_pending()));
  if (const session::TimeBreakdown& times = engine_->passes().times(); times.on()) {
    val parts = val::object();
    for (size_t i = 0; i < session::kTimeParts; ++i) {
      put(parts, session::kTimePartNames[i], times.sums().parts[i]);
    }
    put(parts, "total", times.sums().total);
    put(out, "timeBreakdown", parts);
  }
  return to_text(out);
}

val EngineBinding::unit_states() {
  const residency::Residency& r = engine_->residency();
  const size_t n = r.plan().units.size();
  states_.resize(n);
  for (uint32_t u = 0; u < n; ++u) {
    const bool pinned = r.plan().units[u].pinned;
    switch (r.state(u)) {
      case residency::UnitState::kAbsent:
        states_[u] = pinned ? 4 : 0;
        break;
      case residency::UnitState::kLoading:
        states_[u] = 1;
        break;
      case residency::UnitState::kArrived:
      case residency::UnitState::kReady:
        states_[u] = pinned ? 3 : 2;
        break;
    }
  }
  if (n > 0 && engine_->passes().under_way()) states_[r.cursor_unit()] |= 16;
  return copy_out(std::span<const uint8_t>(states_));
}

void EngineBinding::begin_counting() {
  pass_ms_ = 0;
  pass_tokens_ = 0;
}

// Adds up pass statistics. A session restarts its counts with each forward pass.
void EngineBinding::count() {
  const session::PassStats& stats = session().stats();
  if (stats.compute_ms < pass_ms_ || stats.tokens < pass_tokens_) begin_counting();
  if (stats.tokens > 0 && pass_tokens_ == 0) ++passes_;
  compute_ms_ += stats.compute_ms - pass_ms_;
  tokens_ += stats.tokens - pass_tokens_;
  pass_ms_ = stats.compute_ms;
  pass_tokens_ = stats.tokens;
}

}  // namespace sluice::bindings

// What the sessions of a loaded model share, as plain references. Sessions, their batcher and those
// who generate with them get this and not the engine. The engine outlives them.
#pragma once

#include <memory>

#include "draft/policy.h"
#include "kv/kv_cache.h"
#include "session/execution_context.h"
#include "session/executor.h"
#include "session/fingerprint.h"
#include "session/grammar_vocabulary.h"
#include "session/passes.h"
#include "tokenizer/tokenizer.h"

namespace sluice::session {

struct SessionContext : ExecutionContext {
  const tokenizer::Tokenizer& tokenizer;
  GrammarVocabulary& vocabulary;
  Passes& passes;
  const std::unique_ptr<Executor>& executor;  // may be replaced before the first pass
  kv::KvPool& sequences;
  // Measured latency of small batches under this budget, including waits for weights.
  draft::BatchLatency& costs;
  // Acceptance of draft tokens for this model, or, for a draft model, of those it generates.
  draft::DraftState& draft_state;
  const Fingerprint& bare;  // without adapters

  // What a sequence that was computed with these adapters (AdapterSet::sum()) depends on.
  [[nodiscard]] Fingerprint fingerprint(uint64_t adapters_sum) const {
    Fingerprint out = bare;
    out[Fingerprint::kAdapters] = adapters_sum;
    return out;
  }
  [[nodiscard]] Fingerprint fingerprint() const { return fingerprint(adapters.sum()); }
  // The error after which no pass can be computed.
  [[nodiscard]] const Status& failure() const { return weights.failure(); }
};

}  // namespace sluice::session

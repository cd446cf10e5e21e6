// Checks of tokens, pictures and inputs before a pass begins.
#include "session/admission.h"

#include <algorithm>

namespace sluice::session {

Status adapters_changed() {
  return error(Code::kInvalidArgument,
               "the adapters have changed: the session must recompute its tokens first");
}

Status prompt_too_long(size_t n_tokens, int32_t n_ctx) {
  return error(Code::kPromptTooLong,
               "the prompt has %zu tokens but the context holds %d: shorten it, or load with a "
               "larger context",
               n_tokens, n_ctx);
}

// Checks whether `n_tokens` tokens can follow the first `kept` of the sequence.
Status Admission::length(size_t n_tokens, int32_t kept, int64_t n_rows) const {
  const MemoryPlan& plan = cx.plan;
  if (!cx.failure().ok()) return cx.failure();
  if (busy) return error(Code::kInvalidArgument, "a forward pass is already running");
  if (kept > 0 && outdated) return adapters_changed();
  if (!in_batcher && cx.passes.under_way()) {
    return error(Code::kInvalidArgument, "another session's forward pass is running");
  }
  if (n_tokens == 0) return error(Code::kPromptEmpty, "there are no tokens to process");
  const int64_t room = plan.context.n_ctx - kept;
  if (static_cast<int64_t>(n_tokens) > room) {
    if (kept == 0 || n_tokens > 1) {
      return prompt_too_long(static_cast<size_t>(kept) + n_tokens, plan.context.n_ctx);
    }
    return error(Code::kContextFull, "the context of %d tokens is full (%d used, %zu more needed)",
                 plan.context.n_ctx, kept, n_tokens);
  }
  if (n_rows > 0 && cx.program.head < 0) {
    return error(Code::kInvalidArgument, "this \"%s\" model computes embeddings, not logits",
                 cx.program.hp.arch.c_str());
  }
  int64_t rows = std::min(plan.batch.logits_rows, plan.batch.n_batch);
  // In a batcher, a pass with several rows is one batch, and a batch must not evict in between.
  const kv::Eviction& eviction = plan.kv.shape.eviction;
  if (in_batcher && eviction.ring > 0) {
    rows = std::clamp(n_rows + eviction.until(kept) - static_cast<int64_t>(n_tokens), int64_t{1},
                      rows);
  }
  if (n_rows > 1 && n_rows > rows) {
    return error(Code::kInvalidArgument, "logits of at most %d tokens can be kept",
                 static_cast<int>(rows));
  }
  return {};
}

// The same for tokens of text, which must be in the vocabulary.
Status Admission::text(std::span<const Token> tokens, int32_t kept, int64_t n_rows) const {
  SLUICE_RETURN_IF_ERROR(length(tokens.size(), kept, n_rows));
  const bool whole_text = shape().answers && kept == 0 && n_rows > 0;
  const int32_t source = whole_text ? source_of(tokens) : 0;
  if (whole_text && (source == 0 || static_cast<size_t>(source) == tokens.size())) {
    return error(Code::kInvalidArgument,
                 "a \"%s\" model needs tokens for both its encoder and its decoder",
                 cx.program.hp.arch.c_str());
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    const Token token = i < static_cast<size_t>(source) ? ~tokens[i] : tokens[i];
    if (token >= kMediaToken) {
      return error(
          Code::kMediaMissing,
          "the token %d is a picture's, which is not in the sequence: pass the whole prompt "
          "with its pictures",
          token);
    }
    if (token < 0 || token >= cx.program.hp.n_vocab) {
      return error(Code::kInvalidArgument, "the token %d is not in the vocabulary", token);
    }
  }
  return {};
}

Status Admission::media(const MediaInput& input) const {
  const int64_t n_embd = cx.program.hp.n_embd;
  const int64_t n = input.n_tokens;
  const bool rows_fit = n > 0 && input.rows.size() % static_cast<size_t>(n) == 0 &&
                        static_cast<int64_t>(input.rows.size()) / n % n_embd == 0;
  if (!rows_fit || input.rows.empty() || input.n_positions < 1 || input.n_positions > n ||
      input.columns < 0 || (input.columns > 0 && n % input.columns != 0)) {
    return error(Code::kInvalidArgument,
                 "the rows of a picture do not fit a model whose embeddings have %lld values",
                 static_cast<long long>(n_embd));
  }
  if (in_batcher || shape().bidirectional || shape().answers) {
    return error(Code::kInvalidArgument,
                 "pictures need a decoder, and a session that is not in a batch");
  }
  if (input.columns > 0 && cx.program.hp.rope.sections[0] == 0) {
    return error(Code::kInvalidArgument, "this model has no positions for rows and columns");
  }
  return input.non_causal ? one_batch(n) : Status();
}

Status Admission::one_batch(int64_t n) const {
  const KvPlan& room = cx.plan.kv.layout;
  if (room.slots > 0) {
    return error(Code::kInvalidArgument,
                 "the tokens of a picture see each other here, and the KV policy heavy-hitter "
                 "would evict between them: use full or window");
  }
  if (const int64_t least = min_window_positions(room.sinks, n);
      room.evicts() && room.positions < least) {
    return error(Code::kInvalidArgument,
                 "a KV cache of %d positions cannot evict behind a picture of %lld tokens that see "
                 "each other: use at least %lld",
                 room.positions, static_cast<long long>(n), static_cast<long long>(least));
  }
  if (n > cx.plan.batch.n_batch) {
    return error(Code::kBudgetTooSmall,
                 "a picture of %lld tokens is computed in one batch, but the memory budget allows "
                 "batches of %d",
                 static_cast<long long>(n), cx.plan.batch.n_batch);
  }
  return {};
}

// Checks whether the inputs fit one pass and the model supports the pooling.
Status Admission::inputs(const EmbedPass& pass, int64_t n_tokens) const {
  const model::Program& program = cx.program;
  int32_t before = 0;
  for (const int32_t end : pass.ends) {
    if (end <= before) return error(Code::kPromptEmpty, "an input has no tokens");
    before = end;
  }
  const int32_t batch = cx.plan.batch.n_batch;
  const int32_t max_tokens =
      pass.begins ? batch : std::min(batch, sequence.tokens_until_eviction());
  if (before != n_tokens || n_tokens > max_tokens) {
    return error(Code::kInvalidArgument, "the inputs do not fit a forward pass of %lld tokens",
                 static_cast<long long>(n_tokens));
  }
  const bool alone = shape().one_text();
  const bool in_parts = !pass.begins || !pass.completes;
  if (pass.ends.size() > 1 && (alone || in_parts)) {
    return error(Code::kInvalidArgument, "this model computes embeddings of one input at a time");
  }
  if (in_parts && (shape().bidirectional || shape().answers)) {
    return error(Code::kInvalidArgument, "this model needs its input in one part");
  }
  if (pass.pooling == model::Pooling::kRank && program.rank_tail.width == 0) {
    return error(Code::kInvalidArgument, "this model has no ranking head");
  }
  return {};
}

}  // namespace sluice::session

// One sequence on an engine, and the forward pass that is being computed for it. A pass is stepped:
// it runs until a unit of weights is missing, until its allowance of operations is used, or until
// logits are ready. Nothing blocks and nothing is allocated per token. Only sync() decides what is
// kept of earlier computation. Sessions of an engine share its executor: while one computes a pass,
// no other can begin one, unless a batcher (batcher.h) computes their passes together.
#pragma once

#include <memory>
#include <span>

#include "session/admission.h"
#include "session/sequence.h"
#include "session/session_context.h"

namespace sluice::session {

enum class Wanted : uint8_t { kLastLogits, kAllLogits };

struct PassStats {
  uint64_t tokens = 0;
  double compute_ms = 0;  // time inside step()
  uint64_t blocked = 0;   // times step() waited for a unit
};

class Batcher;

// What a session gets of the batches that compute it.
struct BatchShare {
  bool batched = false;     // by a batcher
  int32_t logits_rows = 0;  // that one pass may request: fewer when a batch is shared
  int32_t sessions = 1;     // computed together with this one, including itself
};

class Session {
 public:
  // The engine must outlive its sessions. Errors: kInvalidArgument if the planned number of
  // sessions is in use.
  [[nodiscard]] static Result<std::unique_ptr<Session>> create(const SessionContext& context);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Makes `tokens` the sequence: keeps their longest common prefix, rewinds to it, and begins a
  // pass over the rest. The last token is always computed again, for its logits. A recurrent state
  // rewinds to an earlier checkpoint; nothing is kept that was computed with other adapters.
  // Returns how many tokens were kept. Errors: begin()'s, with nothing changed.
  [[nodiscard]] Result<int32_t> sync(std::span<const Token> tokens,
                                     Wanted wanted = Wanted::kLastLogits);
  // Rewinds to the longest prefix shared with `tokens`, without the last of them, and begins
  // nothing. Returns position().
  int32_t keep(std::span<const Token> tokens);
  // Begins a pass over `tokens`, appended at position(). With kAllLogits, at most
  // plan().batch.logits_rows tokens and at most n_batch.
  // Errors: kPromptEmpty, kPromptTooLong, kContextFull, kMediaMissing (tokens of a picture),
  // kInvalidArgument (a bad token id, a pass of this or another session is running, the sequence
  // was computed with other adapters; sync() would recompute it).
  [[nodiscard]] Status begin(std::span<const Token> tokens, Wanted wanted = Wanted::kLastLogits);
  // The same for the logits of the last `n_rows` of the tokens, of which there are at most
  // plan().batch.draft_batch. Row 0 is the first of these rows.
  [[nodiscard]] Status begin_last(std::span<const Token> tokens, int32_t n_rows);
  // Begins `n` steps, at most max_queue(), or as many as fit the context: the first computes
  // `token`, and each later one the token that the executor chose before (StepQueue). `queue` must
  // outlive the pass. Then chosen() has the token after each step that was computed; the sequence
  // holds all but the last of them. Empty: one step was computed, and logits() has its row.
  [[nodiscard]] Status begin_queue(Token token, int32_t n, const StepQueue& queue);
  [[nodiscard]] int32_t max_queue() const {
    return batcher_ != nullptr ? 0 : cx_.executor->max_queue();
  }
  [[nodiscard]] std::span<const Token> chosen() const;
  // Bidirectional models: computes `tokens` from an empty cache, for the logits of rows
  // [first, first + count), at most plan().batch.logits_rows. Errors: begin()'s.
  [[nodiscard]] Status begin_rows(std::span<const Token> tokens, int32_t first, int32_t count);
  // Begins a partial forward pass over at most n_batch tokens, from an empty cache; native builds
  // only. `part` must outlive it. Logits are of the part's rows. The sequence cannot be continued
  // until clear(). Errors: begin()'s.
  [[nodiscard]] Status begin_part(std::span<const Token> tokens, const PartialForward& part);
  // Begins a pass over a picture, appended at position(). It computes no logits. `input.rows` must
  // outlive the pass. Errors: begin()'s, and kInvalidArgument (the model takes none, the rows do
  // not fit it, the session is in a batcher, or the cache would evict in the middle of a picture
  // whose tokens see each other), kBudgetTooSmall (such a picture does not fit one batch).
  [[nodiscard]] Status begin_media(const MediaInput& input);
  // Begins a pass over inputs of at most n_batch tokens together, each independent; a later part of
  // an input is appended at position(). Nothing can be generated afterwards until clear().
  // Errors: begin()'s, and kInvalidArgument for a pooling that the model does not support.
  [[nodiscard]] Status begin_embedding(std::span<const Token> tokens, const EmbedPass& pass);
  // Runs the pass: at most `max_ops` operations (0: no limit). kFailed: failure() holds the error,
  // the pass is cancelled, and position() is what the sequence still holds. In a batcher: kBlocked
  // until the batcher has computed the pass.
  [[nodiscard]] Step step(int32_t max_ops = 0);
  [[nodiscard]] bool busy() const { return active_; }
  [[nodiscard]] const Status& failure() const { return failure_; }
  // Cancels the pass; completed batches are kept.
  void cancel();

  [[nodiscard]] BatchShare batch_share() const;

  // Raw logits [n_vocab] of row `row` of the finished pass (row 0 for kLastLogits). Empty after
  // another pass has begun on the engine, or after this sequence was rewound.
  [[nodiscard]] std::span<float> logits(int32_t row = 0) const;

  // Embedding i of the finished pass: of input i, or of token i without pooling. Empty as logits().
  [[nodiscard]] std::span<float> embedding(int32_t i) const;

  [[nodiscard]] int32_t position() const { return sequence_.position(); }
  [[nodiscard]] const Sequence& sequence() const { return sequence_; }
  // The tokens that have been computed.
  [[nodiscard]] std::span<const Token> tokens() const { return sequence_.tokens(); }
  // Truncates the sequence to n tokens and cancels a running pass. Returns the position reached: n,
  // or an earlier one if what position n needs was overwritten.
  [[nodiscard]] int32_t rewind(int32_t n);
  void clear();

  // --- saved state ------------------------------------------------------------------------------
  // Belongs to the model and its KV cache types, not to the budget, threads or context length. Read
  // and written in pieces of any size, without extra memory.

  // Reads bytes [offset, offset + out.size()) of sequence().state_bytes(). Errors:
  // kInvalidArgument.
  [[nodiscard]] Status read_state(uint64_t offset, std::span<uint8_t> out) const;
  // Begins to restore a saved state of `bytes` bytes, passed to write_state() in order; the last
  // piece completes it. Until then, and after any error, the sequence is empty.
  // Errors: kCorrupt, kContextFull, kInvalidArgument (a pass is running, or no restore has begun).
  [[nodiscard]] Status begin_restore(uint64_t bytes);
  // Copies the sequence of another session of the engine, also one that was computed with other
  // adapters. Neither may be computing a pass. Errors: kInvalidArgument.
  [[nodiscard]] Status fork_from(const Session& other);
  [[nodiscard]] Status write_state(std::span<const uint8_t> piece);

  [[nodiscard]] const PassStats& stats() const { return stats_; }
  [[nodiscard]] const SessionContext& context() const { return cx_; }

 private:
  friend class Batcher;
  Session(const SessionContext& context, kv::KvCache cache);
  [[nodiscard]] Admission admission() const {
    return {cx_, sequence_, active_, batcher_ != nullptr, outdated()};
  }
  void begin_logits(std::span<const Token> tokens, int32_t n_rows, int32_t first = -1);
  void begin_pass(std::span<const Token> tokens, const BatchSpec& spec,
                  std::span<const int32_t> ends);
  void start_pass(const BatchSpec& spec, std::span<const int32_t> ends);
  void begin_batch();
  [[nodiscard]] int32_t end_queue();
  void fail(Status status);
  // Whether the sequence was computed with other adapters.
  [[nodiscard]] bool outdated() const {
    return position() > 0 && computed_with_ != cx_.adapters.sum();
  }

  const SessionContext& cx_;
  Batcher* batcher_ = nullptr;
  bool held_ = false;  // by the batcher
  Sequence sequence_;
  bool active_ = false;
  BatchSpec spec_;              // of the pass's last batch; earlier batches compute no output
  int32_t media_from_ = 0;      // where the pass's picture begins
  std::vector<int32_t> ends_;   // ends of its inputs
  int32_t pass_end_ = 0;        // the pass's tokens end before this position
  int32_t batch_ = 0;           // tokens of the running batch
  uint64_t pass_ = 0;           // number of the last pass on the engine, which owns the logits
  int32_t first_logits_ = 0;    // first row of its logits, in a batch of several sessions
  uint64_t computed_with_ = 0;  // the adapters' sum when the sequence began
  Status failure_;
  PassStats stats_;
};

}  // namespace sluice::session

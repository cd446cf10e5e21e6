// One conversation's sequence on an engine, and the pass that is being computed for it. A pass is
// stepped: it runs until a unit of weights is missing, until its allowance of operations is used,
// or until logits are ready; nothing blocks and nothing is allocated per token. sync() alone
// decides what is kept of what was computed before: nobody else has an idea of its own of what is
// cached. Sessions of an engine share its executor: while one is inside a pass no other can begin
// one, unless a batcher (batcher.h) computes their passes together.
#pragma once

#include <memory>
#include <span>

#include "session/engine.h"
#include "session/executor.h"
#include "session/sequence.h"

namespace sluice::session {

enum class Wanted : uint8_t { kLastLogits, kAllLogits };

// Texts, or a part of one, whose embeddings a pass computes.
struct EmbedPass {
  std::span<const int32_t> ends;  // of each text in the tokens, ascending; the last: their number
  model::Pooling pooling = model::Pooling::kNone;
  // The tokens begin their text, and end it. Only a single text of a model that reads from left to
  // right can be given in parts; that it goes on, position() says.
  bool begins = true, completes = true;
};

// Why what was computed before cannot go on.
[[nodiscard]] Status adapters_changed();

struct PassStats {
  uint64_t tokens = 0;
  double compute_ms = 0;  // inside step()
  uint64_t blocked = 0;   // times step() had to wait for a unit
};

class Batcher;

class Session {
 public:
  // The engine outlives its sessions.
  // Errors: kInvalidArgument when as many sessions as the plan has room for are there.
  [[nodiscard]] static Result<std::unique_ptr<Session>> create(Engine& engine);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Makes `tokens` the sequence: keeps the longest prefix that it shares with them (at most all but
  // the last token, whose logits are wanted; none of what other adapters computed), goes back as
  // far as that needs (a recurrent state to its last checkpoint), and begins a pass over the rest.
  // Returns how many tokens were kept. Errors: begin()'s, after which nothing has changed.
  [[nodiscard]] Result<int32_t> sync(std::span<const Token> tokens,
                                     Wanted wanted = Wanted::kLastLogits);
  // Begins a pass over `tokens`, appended at position(). With kAllLogits there may be at most
  // plan().logits_rows tokens, and at most n_batch.
  // Errors: kPromptEmpty, kPromptTooLong, kContextFull, kInvalidArgument (token id, a pass of this
  // or another session under way, a sequence computed with other adapters, which sync() would
  // compute anew).
  [[nodiscard]] Status begin(std::span<const Token> tokens, Wanted wanted = Wanted::kLastLogits);
  // The same for the logits of the last `n_rows` of the tokens, which are at most
  // plan().draft_batch; row 0 is the first of them.
  [[nodiscard]] Status begin_last(std::span<const Token> tokens, int32_t n_rows);
  // Of a model that reads texts whole: begins `tokens` anew for the logits of those in
  // [first, first + count), at most plan().logits_rows. Errors: begin()'s.
  [[nodiscard]] Status begin_rows(std::span<const Token> tokens, int32_t first, int32_t count);
  // Begins a part of a pass over a text of at most n_batch tokens, from its beginning; natively
  // alone. `part` outlives it. Logits are of the part's rows. Nothing can follow it until clear().
  // Errors: begin()'s.
  [[nodiscard]] Status begin_part(std::span<const Token> tokens, const PartialForward& part);
  // Begins a pass over texts of at most n_batch tokens together, each alone by itself; a part of a
  // text is appended at position(). Nothing can be generated after it until clear().
  // Errors: begin()'s, and kInvalidArgument for a pooling that the model has no head for.
  [[nodiscard]] Status begin_embedding(std::span<const Token> tokens, const EmbedPass& pass);
  // Works on the pass: at most `max_ops` operations (0: no limit). kFailed: failure() says why; the
  // pass is given up, and position() says what the sequence holds. In a batcher: kBlocked until
  // that has computed the pass.
  [[nodiscard]] Step step(int32_t max_ops = 0);
  [[nodiscard]] bool busy() const { return active_; }
  [[nodiscard]] bool in_batcher() const { return batcher_ != nullptr; }
  [[nodiscard]] const Status& failure() const { return failure_; }
  // Gives the pass up; batches that were complete stay.
  void cancel();

  // Rows of logits that a pass may ask for, besides what the plan says: fewer beside others.
  [[nodiscard]] int32_t rows_share() const;
  // Tokens of a pass with several rows of logits that need not be undone where some are not wanted:
  // the sequence can go back to any of them. In a batcher such a pass has no more.
  [[nodiscard]] int32_t tokens_until_eviction() const { return sequence_.tokens_until_eviction(); }
  // Sessions whose passes are computed together with its own, itself included.
  [[nodiscard]] int32_t sharing() const;

  // Raw logits [n_vocab] of row `row` of the finished pass (row 0 for kLastLogits); empty once
  // another pass has begun on the engine, or this sequence has been moved.
  [[nodiscard]] std::span<float> logits(int32_t row = 0) const;

  // Result i of the finished pass: of text i, or of token i without pooling; empty as logits are.
  [[nodiscard]] std::span<float> embedding(int32_t i) const;

  [[nodiscard]] int32_t position() const { return sequence_.position(); }
  [[nodiscard]] const Sequence& sequence() const { return sequence_; }
  // The tokens that are computed.
  [[nodiscard]] std::span<const Token> tokens() const { return sequence_.tokens(); }
  // Forgets what comes after the first n tokens, and a pass under way. Returns the position
  // reached: n, or an earlier one where what position n needs is no longer there.
  [[nodiscard]] int32_t rewind(int32_t n);
  void clear();

  // --- the sequence as bytes
  // ---------------------------------------------------------------------- Bound to the model, not
  // to budget, threads or context length. Read and written in pieces of any size, without memory.
  [[nodiscard]] uint64_t state_bytes() const;
  // Bytes [offset, offset + out.size()) of it. Errors: kInvalidArgument.
  [[nodiscard]] Status read_state(uint64_t offset, std::span<uint8_t> out) const;
  // Becomes a saved state of `bytes` bytes, which write_state() brings in order; the last piece
  // completes it. Until then, and after any error, the sequence is empty.
  // Errors: kCorrupt, kContextFull, kInvalidArgument (a pass under way, nothing begun).
  [[nodiscard]] Status begin_restore(uint64_t bytes);
  // Becomes what another session of the engine is between its passes. Errors: kInvalidArgument.
  [[nodiscard]] Status fork_from(const Session& other);
  [[nodiscard]] Status write_state(std::span<const uint8_t> piece);

  // For checkpoints of one pass from position 0. Its attention runs in double precision over f32
  // keys and values, so that a comparison does not show the cache's rounding.
  void observe(Observer observer) { engine_.executor().observe(std::move(observer)); }
  // What every matrix of the passes that follow is multiplied with.
  void watch_products(ProductWatch watch) { engine_.executor().watch_products(watch); }
  [[nodiscard]] const PassStats& stats() const { return stats_; }
  // Layer that is being computed, -1 outside layers.
  [[nodiscard]] int32_t layer() const { return active_ ? engine_.executor().layer() : -1; }
  [[nodiscard]] Engine& engine() const { return engine_; }

 private:
  friend class Batcher;
  Session(Engine& engine, kv::KvCache cache);
  [[nodiscard]] bool bidirectional() const { return sequence_.cache().shape().bidirectional; }
  [[nodiscard]] bool answers() const { return sequence_.cache().shape().answers; }
  [[nodiscard]] Status admit(std::span<const Token> tokens, int32_t kept, int64_t n_rows) const;
  [[nodiscard]] Status admit_embedding(const EmbedPass& pass, int64_t n_tokens) const;
  void begin_logits(std::span<const Token> tokens, int32_t n_rows, int32_t first = -1);
  void begin_pass(std::span<const Token> tokens, const BatchSpec& spec,
                  std::span<const int32_t> ends);
  void begin_batch();
  [[nodiscard]] bool in_part() const { return kPartialForward && spec_.part != nullptr; }
  void fail(Status status);
  // Whether other adapters have computed what the sequence holds.
  [[nodiscard]] bool outdated() const {
    return position() > 0 && computed_by_ != engine_.identity();
  }

  Engine& engine_;
  Batcher* batcher_ = nullptr;
  bool held_ = false;  // by it
  Sequence sequence_;
  bool active_ = false;
  BatchSpec spec_;             // of the pass's last batch; the ones before want nothing
  std::vector<int32_t> ends_;  // of its texts
  int32_t pass_end_ = 0;       // the pass's tokens end before this position
  int32_t batch_ = 0;          // tokens of the batch under way
  uint64_t pass_ = 0;          // number of the last pass on the engine; logits belong to it
  int32_t first_logits_ = 0;   // their first row, of the rows of a batch of several sessions
  uint64_t computed_by_ = 0;   // Engine::identity() when the sequence began
  Status failure_;
  PassStats stats_;
};

}  // namespace sluice::session

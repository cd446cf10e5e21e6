// One answer, from prompt to last token, over a session: sync, step, sample, decode, stop. It is
// resumable like a pass: whoever drives the engine (terminal, worker, server, C) calls step() and
// takes the pieces, so that what a generation is stands here once and for all of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "generate/drafter.h"
#include "grammar/grammar.h"
#include "sample/sampler.h"
#include "session/session.h"

namespace sluice::generate {

inline constexpr int32_t kMaxStops = 64;       // stop strings of one generation
inline constexpr size_t kMaxStopBytes = 4096;  // of each of them
inline constexpr int32_t kMaxTopLogprobs = 64;

// What the answer has to be: text of a grammar, in a form that grammar::compile() takes.
struct Constraint {
  grammar::Kind kind = grammar::Kind::kJson;
  std::string text;
  grammar::CompileOptions options;
};

struct Options {
  sample::Params sampling;
  int64_t max_tokens = -1;        // -1: until the context is full
  std::vector<std::string> stop;  // UTF-8; they end the text and are no part of it
  int32_t logprobs = -1;          // likeliest tokens to report with each token; -1: none at all
  bool special = false;           // control tokens have text
  bool ignore_eos = false;        // goes on after an end token
  std::optional<Constraint> constraint;
  bool reuse_prefix = true;  // keeps what the session already holds of the prompt
  Drafts drafts;             // tokens guessed ahead and checked together: the answer is the same
  // Of the caller, outlives the generation: what is said instead of what is drawn, for as long as
  // it goes. To measure texts of a kind, whatever the model would write.
  std::span<const Token> script;
};

// One generated token. `text` is whole UTF-8 characters: what became ready with this token.
struct Piece {
  Token token = 0;
  std::string text;
  float logprob = 0;                   // natural, under the model's own distribution
  std::vector<sample::Candidate> top;  // the likeliest, best first
};

enum class Finish : uint8_t { kNone, kStop, kLength, kContext, kCancelled, kFailed };

struct Counts {
  int32_t prompt = 0;     // tokens of the prompt
  int32_t cached = 0;     // of them, held already
  int32_t computed = 0;   // of them, computed here: the others, or fewer in a prompt that was cut
  int32_t generated = 0;  // tokens of the answer, the end token not counted
  int32_t forced = 0;     // of them, said without a choice since the grammar left none
  int32_t drafted = 0;    // tokens that were guessed ahead and checked
  int32_t accepted = 0;   // of them, right: each saved a pass
  int32_t passes = 0;     // of the answer, the prompt's not counted
  double prompt_ms = 0;   // from begin() to the prompt's last logits; of a cut one, until the cut
  double time_to_first_token_ms =
      0;                   // from begin() to the first choice of a token; 0: there was none
  double generate_ms = 0;  // from the prompt's end to the last token

  // Tokens per second; 0 where nothing was computed.
  [[nodiscard]] double prompt_tokens_per_second() const;
  [[nodiscard]] double tokens_per_second() const;
};

class Generation {
 public:
  // Bytes that a generation with such options holds at most, apart from pieces.
  [[nodiscard]] static uint64_t memory_bytes(const Options& options, int64_t n_vocab);

  // Begins an answer to `prompt` on `session`, which outlives the generation and does nothing else
  // meanwhile. What the generation holds is in the engine's plan (MemoryPlan::request).
  // Errors, after which the session is as it was: Session::sync's, kInvalidArgument (sampling
  // parameters, too many or too long stop strings, an empty one), kOutOfMemory; of a constraint
  // grammar::compile()'s and Engine::vocabulary()'s.
  [[nodiscard]] static Result<std::unique_ptr<Generation>> begin(session::Session& session,
                                                                 std::span<const Token> prompt,
                                                                 const Options& options);
  ~Generation();

  // Works on: at most `max_ops` operations of a pass (0: no limit), or the choice of one token.
  // kBlocked: weights are missing, the draft model's where drafting() says so. kDone: finish() says
  // how it ended. kFailed: failure() says why; the session keeps what it had computed and can be
  // used again.
  [[nodiscard]] Step step(int32_t max_ops = 0);
  // Ends it where it stands: held text is dropped, finish() is kCancelled. The session keeps the
  // tokens whose pass was complete. One that has ended stays as it is.
  void cancel();

  // Pieces that have become ready since the last call, in order.
  [[nodiscard]] std::vector<Piece> take_pieces();

  [[nodiscard]] Finish finish() const;
  [[nodiscard]] const Status& failure() const;
  [[nodiscard]] const std::string& stop_string() const;  // that ended it; "": none
  [[nodiscard]] const Counts& counts() const;
  // True until the first token is being chosen.
  [[nodiscard]] bool in_prompt() const;
  // True while a pass is computed.
  [[nodiscard]] bool computing() const;
  // True while that is for a batcher of several sessions to do.
  [[nodiscard]] bool waits_for_pass() const;
  // True while the model of Options::drafts computes.
  [[nodiscard]] bool drafting() const;

 private:
  struct Impl;
  explicit Generation(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::generate

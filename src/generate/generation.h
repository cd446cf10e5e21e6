// One generation on a session, from prompt to last token: sync, step, constrain, sample, decode,
// stop. It is resumable like a forward pass: the driver of the engine (CLI, browser worker, server,
// C API) calls step() and takes the pieces. All of them share this one implementation.
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

inline constexpr int32_t kMaxStops = 64;       // stop strings of one generation, and stop tokens
inline constexpr size_t kMaxStopBytes = 4096;  // of each stop string
inline constexpr int32_t kMaxTopLogprobs = 64;

// A constraint on the output: the text of a grammar or schema, as grammar::compile() takes it.
struct Constraint {
  grammar::Kind kind = grammar::Kind::kJson;
  std::string text;
  grammar::CompileOptions options;
};

// A picture in a prompt, whose tokens there are session::media_token() of its hash and rows.
struct Media {
  int32_t first = 0;          // of its tokens
  session::MediaInput input;  // without rows if the session holds the picture already
  // Begins the pass over it. Engines without pictures make no Media, so they do not link it.
  Status (session::Session::*begin)(const session::MediaInput&) = &session::Session::begin_media;
};

struct Options {
  sample::Params sampling;
  int64_t max_tokens = -1;  // -1: until the context is full
  // UTF-8; they end the output and are not part of it. One that is the text of a control token also
  // stops at this token, which has no text unless `special`.
  std::vector<std::string> stop;
  std::vector<Token> stop_tokens;  // they end the output, too, and are not part of it
  int32_t logprobs = -1;           // likeliest tokens to report with each token; -1: no logprobs
  // Log-probabilities after sampling parameters and constraint, not of the model's own
  // distribution.
  bool post_sampling_probs = false;
  bool special = false;     // include the text of control tokens
  bool ignore_eos = false;  // continue after an end token
  std::optional<Constraint> constraint;
  bool reuse_prefix = true;  // keep the prefix of the prompt that the session already holds
  Drafts drafts;             // speculative decoding; the output is the same
  // The prompt's pictures, ascending; none if the session holds all. Borrowed with their rows until
  // the prompt is computed. No model drafts after pictures, and nothing with recurrent states.
  std::span<const Media> media;
  // Tokens to emit instead of the sampled ones, until they run out. For measuring a given text.
  // Borrowed: must outlive the generation.
  std::span<const Token> script;
};

// One generated token. `text`: the UTF-8 characters completed by this token, perhaps none.
struct Piece {
  Token token = 0;
  std::string text;
  std::string bytes;  // of this token alone, a control token's name; only with logprobs
  float logprob = 0;  // natural logarithm; see Options::post_sampling_probs
  std::vector<sample::Candidate> top;  // the likeliest, best first
};

enum class Finish : uint8_t { kNone, kStop, kLength, kContext, kCancelled, kFailed };

struct Counts {
  int32_t prompt = 0;     // tokens of the prompt
  int32_t cached = 0;     // prompt tokens that the session already held
  int32_t computed = 0;   // prompt tokens computed here; fewer than the rest after cancel()
  int32_t generated = 0;  // generated tokens, without the end token
  int32_t forced = 0;     // generated tokens that the grammar left no choice about (jump-forward)
  int32_t drafted = 0;    // draft tokens that were checked
  int32_t accepted = 0;   // draft tokens that were accepted; each saved a forward pass
  int32_t passes = 0;     // forward passes, without the prompt's
  double prompt_ms = 0;   // from begin() to the prompt's last logits, or to cancel()
  double time_to_first_token_ms = 0;  // from begin() to the first sampled token; 0: none
  double generate_ms = 0;             // from the prompt's end to the last token

  // Tokens per second; 0 if nothing was computed.
  [[nodiscard]] double prompt_tokens_per_second() const;
  [[nodiscard]] double tokens_per_second() const;
};

class Generation {
 public:
  // Upper bound of the bytes that a generation with these options holds, without pieces.
  [[nodiscard]] static uint64_t memory_bytes(const Options& options, int64_t n_vocab);

  // Begins generating from `prompt` on `session`, which must outlive the generation and do nothing
  // else meanwhile. Its memory is part of the engine's plan (MemoryPlan::request).
  // Errors, which leave the session unchanged: Session::sync's, kInvalidArgument (sampling
  // parameters, stop strings that are too many, too long or empty), kOutOfMemory; with a
  // constraint, grammar::compile()'s and Engine::vocabulary()'s.
  [[nodiscard]] static Result<std::unique_ptr<Generation>> begin(session::Session& session,
                                                                 std::span<const Token> prompt,
                                                                 const Options& options);
  ~Generation();

  // Runs at most `max_ops` operations of a forward pass (0: no limit), or samples one token.
  // kBlocked: weights are missing (the draft model's if drafting()). kDone: see finish().
  // kFailed: see failure(); the session keeps what it had computed and can be used again.
  [[nodiscard]] Step step(int32_t max_ops = 0);
  // Ends the generation now: drops held text, and finish() becomes kCancelled. The session keeps
  // the tokens whose pass was complete. Does nothing after the end.
  void cancel();

  // Pieces that have become ready since the last call, in order.
  [[nodiscard]] std::vector<Piece> take_pieces();

  [[nodiscard]] Finish finish() const;
  [[nodiscard]] const Status& failure() const;
  [[nodiscard]] const std::string& stop_string() const;  // the one that ended it; "": none
  [[nodiscard]] const Counts& counts() const;
  // True until the prompt is computed.
  [[nodiscard]] bool in_prompt() const;
  // True while a forward pass is under way.
  [[nodiscard]] bool computing() const;
  // True while a forward pass is under way that a batcher of several sessions computes.
  [[nodiscard]] bool waits_for_pass() const;
  // True while the model of Options::drafts computes.
  [[nodiscard]] bool drafting() const;

 private:
  struct Impl;
  explicit Generation(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::generate

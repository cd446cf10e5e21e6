// A generation's state. It alternates forward passes and sampling; each step() does a part of one
// of them. A token's text, log-probabilities and whether it ends the generation are settled when it
// is sampled, before its own forward pass. A constraint therefore sits between logits and sampler
// in choose(), and draft tokens follow the tokens with which go_on() begins the next pass. A pass
// that checks draft tokens has logits for each of them. Tokens are sampled from them one after
// another, by the same calls that separate passes would make, until one differs from its draft
// token.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "generate/generation.h"
#include "generate/stop_filter.h"
#include "grammar/matcher.h"

namespace sluice::generate {

struct Generation::Impl {
  enum class State : uint8_t { kPass, kChoose, kDraft, kEnded };

  Impl(session::Session& s, const Options& o, bool sees)
      : session(s),
        tokenizer(s.context().tokenizer),
        options(o),
        sampler(o.sampling, s.context().program.hp.n_vocab),
        decoder(tokenizer),
        filter(options.stop) {
    // Encoder-decoder models have no memory planned for draft tokens, so they decode without.
    // A model that drafts cannot read pictures, and a recurrent state could rewind to before one.
    Drafts drafts = o.drafts;
    if (sees) drafts.model = nullptr;
    const bool rewinds = !sees || !s.context().plan.kv.shape.recurrent();
    if (drafts.any() && rewinds && s.context().program.decoder == 0) drafter.emplace(s, drafts);
  }
  ~Impl() { cancel(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // --- generation_prompt.cpp
  Status constrain();
  Status start(std::span<const Token> prompt);
  Status start_with_media(std::span<const Token> prompt);
  Status begin_part();

  // --- generation_passes.cpp
  Step advance(int32_t max_ops);
  Step go_on();
  Step draft_step(int32_t max_ops);
  Step begin_pass();
  [[nodiscard]] bool keeps_pictures(int64_t most) const;
  [[nodiscard]] int32_t steps_to_queue() const;
  Status begin_queue(int32_t steps);

  // --- generation_output.cpp
  Step choose();
  Result<Token> pick();
  [[nodiscard]] std::span<const float> logits() const {
    return session.logits(length - 1 - first_row);
  }
  bool emit_token(Token token, double now);
  bool jump_forward(double now, std::vector<Token>* tokens);
  bool stops_at(Token token);
  Piece make_piece(Token token);
  void release(bool all);

  // --- generation.cpp
  Step end(Finish how);
  Step fail(Status why);
  void cut_prompt();
  void cancel();

  session::Session& session;
  const tokenizer::Tokenizer& tokenizer;
  const Options options;
  std::vector<Token> parts;  // a prompt with pictures, whose parts are passes of their own
  sample::Sampler sampler;
  tokenizer::StreamDecoder decoder;  // sees no prompt; its first token continues a text
  StopFilter filter;
  std::unique_ptr<grammar::Matcher> matcher;  // null: no constraint

  State state = State::kEnded;
  bool in_prompt = true;
  std::optional<Drafter> drafter;
  float sampling[session::kQueueParams + session::kMaxQueue];  // of `queue`
  session::StepQueue queue;     // steps whose tokens the executor chooses
  int32_t queued = 0;           // steps of the pass, if it is a queue
  std::vector<Token> upcoming;  // tokens of the next pass
  int32_t length = 0;           // tokens of the sequence before unconfirmed draft tokens
  int32_t first_row = 0;        // position whose logits are the first of the pass
  std::vector<Piece> pieces;    // the first `ready` of them can be taken, the others are held
  size_t ready = 0;
  uint64_t released_bytes = 0;  // text bytes of all pieces that became ready
  Finish finish = Finish::kNone;
  Status failure;
  std::string stop_string;
  Counts counts;
  const double started = monotonic_ms();
  double prompt_end = 0;
};

}  // namespace sluice::generate

// What a generation emits: samples a token under the constraint, finds out whether it ends the
// output, and releases its text.
#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "generate/generation_state.h"

namespace sluice::generate {
namespace {

// The error for a sampler that found no token.
Status no_token(std::span<const float> logits) {
  for (const float logit : logits) {
    if (logit > -INFINITY) {
      return error(Code::kInvalidArgument,
                   "logit_bias bans every token that the model can generate");
    }
  }
  return error(Code::kCorrupt, "the model's logits are not numbers: its weights are damaged");
}

}  // namespace

// Samples a token. If the grammar rejects it, samples again from the allowed tokens only, which
// gives the same distribution as masking first. (Not quite if top-p or the like cut the tail, so
// that reported probabilities need the mask every time.)
Result<Token> Generation::Impl::pick() {
  const std::span<const Token> chosen = session.chosen();
  if (!chosen.empty()) {
    sampler.skip();
    return chosen[static_cast<size_t>(length - 1 - first_row)];
  }
  const std::span<const float> row = logits();
  std::span<const Token> text = session.tokens().first(static_cast<size_t>(length));
  text = text.subspan(static_cast<size_t>(session::source_of(text)));
  Token token = sampler.sample(row, text);
  if (token == sample::kNoToken) return no_token(row);
  if (const size_t at = static_cast<size_t>(counts.generated); at < options.script.size()) {
    return options.script[at];
  }
  if (!matcher || (!options.post_sampling_probs && matcher->accepts(token))) return token;
  token = sampler.sample(row, text, matcher->mask());
  if (matcher->failed()) {
    return error(Code::kGrammarTooLarge, "the grammar is too ambiguous for this output");
  }
  if (token == sample::kNoToken) {
    return error(Code::kInvalidArgument, "no token of the model can continue this grammar");
  }
  return token;
}

// Adds a token to the output; true if that ends the generation.
bool Generation::Impl::emit_token(Token token, double now) {
  ++counts.generated;
  if (drafter) drafter->said(token);
  counts.generate_ms = now - prompt_end;
  pieces.push_back(make_piece(token));
  filter.push(pieces.back().text);
  release(/*all=*/false);
  if (filter.stopped() != nullptr) {
    static_cast<void>(end(Finish::kStop));
  } else if (matcher && matcher->must_end()) {
    static_cast<void>(end(Finish::kStop));
  } else if (counts.generated == options.max_tokens) {
    static_cast<void>(end(Finish::kLength));
  }
  return state == State::kEnded;
}

// Jump-forward: emits the text that the grammar forces, tokenized as the model would, and adds its
// tokens to the next pass. The last token is not emitted, because following text could make it
// longer. True if the generation has ended.
bool Generation::Impl::jump_forward(double now, std::vector<Token>* tokens) {
  constexpr size_t kMaxBytes = 1024;
  if (!matcher || options.logprobs >= 0) return false;
  const std::string text = matcher->forced(kMaxBytes);
  if (text.empty()) return false;
  Result<std::vector<Token>> ids = tokenizer.try_encode(
      text, {.add_special = false, .parse_special = false, .continuation = true});
  if (!ids.ok() || ids->empty()) return false;
  const int64_t room = session.context().plan.context.n_ctx - length - 2;
  ids->pop_back();
  for (const Token id : *ids) {
    if (static_cast<int64_t>(tokens->size()) > room || stops_at(id) || !matcher->advance(id)) {
      return false;
    }
    ++counts.forced;
    if (emit_token(id, now)) return true;
    tokens->push_back(id);
  }
  return false;
}

// Whether a token ends the output before it.
bool Generation::Impl::stops_at(Token token) {
  const auto& ids = options.stop_tokens;
  if (std::find(ids.begin(), ids.end(), token) != ids.end()) return true;
  if (options.stop.empty() || !tokenizer.is_control(token)) return false;
  const auto found = std::find(options.stop.begin(), options.stop.end(), tokenizer.piece(token));
  if (found == options.stop.end()) return false;
  stop_string = *found;
  return true;
}

Step Generation::Impl::choose() {
  Result<Token> picked = pick();
  if (!picked.ok()) return fail(picked.status());
  const Token token = *picked;
  const double now = monotonic_ms();
  if (counts.generated == 0) counts.time_to_first_token_ms = now - started;
  const bool free = options.ignore_eos && !matcher;
  if (stops_at(token) || (!free && tokenizer.is_end_of_generation(token))) {
    return end(Finish::kStop);
  }
  if (matcher) static_cast<void>(matcher->advance(token));
  if (emit_token(token, now)) return Step::kDone;
  upcoming.assign(1, token);
  if (jump_forward(now, &upcoming)) return Step::kDone;
  return go_on();
}

Piece Generation::Impl::make_piece(Token token) {
  Piece piece;
  piece.token = token;
  piece.text = decoder.push(token, options.special);
  if (options.logprobs >= 0) {
    piece.bytes = tokenizer.token_bytes(token, /*special=*/true);
    // The first word of a text has no space in SentencePiece.
    if (piece.bytes.starts_with(' ') &&
        piece.bytes.compare(1, std::string::npos, piece.text) == 0) {
      piece.bytes.erase(0, 1);
    }
    piece.top = options.post_sampling_probs
                    ? sampler.top_logprobs(options.logprobs, token)
                    : sample::top_logprobs(logits(), options.logprobs, token);
    piece.logprob = piece.top.back().logprob;
    piece.top.pop_back();
  }
  return piece;
}

// Releases the pieces whose text is ready. The last one is held while a character in it is
// incomplete: if the generation ends here, that character's replacement is part of this piece.
void Generation::Impl::release(bool all) {
  for (; ready < pieces.size(); ++ready) {
    const uint64_t text_end = released_bytes + pieces[ready].text.size();
    const bool open = ready + 1 == pieces.size() && decoder.unfinished();
    if (!all && (open || text_end > filter.ready())) break;
    released_bytes = text_end;
  }
}

}  // namespace sluice::generate

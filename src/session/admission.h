// Whether a session can begin a pass. Nothing has changed if one of these checks fails.
#pragma once

#include <span>

#include "session/sequence.h"
#include "session/session_context.h"

namespace sluice::session {

// Inputs, or a part of one, whose embeddings a pass computes.
struct EmbedPass {
  std::span<const int32_t> ends;  // end of each input in the tokens, ascending; last: their number
  model::Pooling pooling = model::Pooling::kNone;
  // Whether the tokens begin and end their input. Only a single input of a causal model can be
  // given in parts; later parts continue at position().
  bool begins = true, completes = true;
};

// The error if the sequence was computed with other adapters and cannot continue.
[[nodiscard]] Status adapters_changed();

// The error of a prompt of so many tokens in a shorter context.
[[nodiscard]] Status prompt_too_long(size_t n_tokens, int32_t n_ctx);

struct Admission {
  const SessionContext& cx;
  const Sequence& sequence;
  bool busy = false;        // the session computes a pass
  bool in_batcher = false;  // and others with it
  bool outdated = false;    // it was computed with other adapters

  // `n_tokens` tokens after the first `kept` of the sequence, for the logits of `n_rows`.
  [[nodiscard]] Status length(size_t n_tokens, int32_t kept, int64_t n_rows) const;
  // The same for tokens of text, which must be in the vocabulary.
  [[nodiscard]] Status text(std::span<const Token> tokens, int32_t kept, int64_t n_rows) const;
  // Rows of a picture, whatever their number.
  [[nodiscard]] Status media(const MediaInput& input) const;
  // Inputs of `n_tokens` tokens in one pass, and their pooling.
  [[nodiscard]] Status inputs(const EmbedPass& pass, int64_t n_tokens) const;

 private:
  [[nodiscard]] const kv::KvShape& shape() const { return sequence.cache().shape(); }
  // A picture of `n` tokens that see each other.
  [[nodiscard]] Status one_batch(int64_t n) const;
};

}  // namespace sluice::session

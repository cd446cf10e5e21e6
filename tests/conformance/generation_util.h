// Everything that a test checks of one generation, run to its end or cancelled.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "fixtures_util.h"
#include "generate/generation.h"

namespace sluice::test {

struct Answer {
  Status status;
  generate::Finish finish = generate::Finish::kNone;
  std::string text, stop_string;
  std::vector<generate::Piece> pieces;
  std::vector<session::Token> held;  // tokens of the session afterwards
  generate::Counts counts;
  [[nodiscard]] std::vector<session::Token> tokens() const {
    std::vector<session::Token> out;
    for (const generate::Piece& piece : pieces) out.push_back(piece.token);
    return out;
  }
};

// Steps by at most `max_ops` operations, and cancels after `cancel_after` steps (-1: never).
inline Answer answer(Opened& opened, std::span<const session::Token> prompt,
                     const generate::Options& options, int32_t max_ops = 0, int cancel_after = -1) {
  Answer out;
  auto begun = generate::Generation::begin(*opened.session, prompt, options);
  out.status = begun.status();
  if (!begun.ok()) return out;
  generate::Generation& generation = **begun;
  int steps = 0;
  out.status = opened.model->drive([&](int32_t) {
    if (steps++ == cancel_after) {
      generation.cancel();
      return session::Step::kDone;
    }
    const session::Step step = generation.step(max_ops);
    for (generate::Piece& piece : generation.take_pieces()) {
      out.text += piece.text;
      out.pieces.push_back(std::move(piece));
    }
    return step;
  });
  if (out.status.ok()) out.status = generation.failure();
  out.finish = generation.finish();
  out.stop_string = generation.stop_string();
  out.counts = generation.counts();
  const auto held = opened.session->tokens();
  out.held.assign(held.begin(), held.end());
  return out;
}

}  // namespace sluice::test

// How well a model predicts a text: the negative log likelihood of each of its tokens. The text is
// read in windows of the context length that begin `stride` tokens apart; each token is scored
// once, in the first window that holds it, so with a stride below the context every token but those
// of the first window is predicted from at least context - stride others. Where the vocabulary has
// a BOS that it adds, every window opens with it, as every text would.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/cli.h"

namespace sluice::cli {

struct Score {
  session::Token token = 0;
  double nll = 0;  // nats
};

struct Scored {
  std::unique_ptr<native::Model> model;
  size_t stride = 0;
  std::vector<Score> scores;  // a first token with nothing before it has none

  double mean = 0;   // nats per token
  double error = 0;  // standard error of that mean
  [[nodiscard]] double perplexity() const;
};

struct LogLikelihood {
  std::string text;
  int stride = 0;  // 0: half of the context
  bool no_parse_special = false;
};

// Errors: those of opening and running the model; kInvalidArgument for a model
// that reads texts whole, or a stride that is no part of the context; kPromptEmpty.
[[nodiscard]] Result<Scored> score_text(const Common& common, const LogLikelihood& scoring);

}  // namespace sluice::cli

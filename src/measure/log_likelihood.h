// Scores a text: the negative log likelihood of each token. Windows of the context length start
// `stride` tokens apart. Each token is scored once, in the first window that holds it. With a
// stride below the context, every token after the first window has at least context - stride tokens
// before it. If the vocabulary adds a BOS, each window starts with it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "native/model_file.h"

namespace sluice::measure {

struct Score {
  session::Token token = 0;
  double nll = 0;  // nats
};

struct Scored {
  std::unique_ptr<native::Model> model;
  size_t stride = 0;
  std::vector<Score> scores;  // no score for a first token without BOS

  double mean = 0;   // nats per token
  double error = 0;  // standard error of the mean
  [[nodiscard]] double perplexity() const;
};

struct LogLikelihood {
  std::string model;
  native::LoadOptions load;
  std::string text;
  int stride = 0;  // tokens; 0: half of the context
  bool no_parse_special = false;
  std::function<void(uint64_t done, uint64_t total)> on_progress = nullptr;  // in tokens
};

// Errors: those of opening and running the model; kInvalidArgument for a model with bidirectional
// attention or a stride not below the context; kPromptEmpty.
[[nodiscard]] Result<Scored> score_text(LogLikelihood scoring);

}  // namespace sluice::measure

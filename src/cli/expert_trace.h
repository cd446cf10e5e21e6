// Traces of a router's choices, as JSON lines (docs/mixtures.md): recorded from a run, and replayed
// in place of a router, so that a model with random weights meets the routing of a trained one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "session/executor.h"

namespace sluice::cli {

struct ExpertTrace {
  int32_t layers = 0, experts = 0, used = 0;
  std::vector<int32_t> choices;  // [tokens][layers][used], -1: none

  [[nodiscard]] size_t tokens() const {
    return choices.size() / (static_cast<size_t>(layers) * static_cast<size_t>(used));
  }
  [[nodiscard]] const int32_t* at(size_t token, int32_t layer) const {
    return choices.data() + (token * static_cast<size_t>(layers) + static_cast<size_t>(layer)) *
                                static_cast<size_t>(used);
  }
};

// Errors: those of reading; kInvalidArgument, which names the line.
[[nodiscard]] Result<ExpertTrace> read_expert_trace(const std::string& path);

// Errors: kInvalidArgument, if the model's mixtures do not have the trace's numbers of experts.
[[nodiscard]] Status check_experts(const ExpertTrace& trace, const model::Program& program);

// Counts the tokens of batches. Rows without wanted logits are dropped before the last layer, so a
// mixture may see only the last rows of a batch.
class BatchTokens {
 public:
  // The first token of a mixture's `n` rows.
  size_t first(int32_t mixture, int32_t n) {
    if (mixture == 0) {
      batch_ += static_cast<size_t>(rows_);
      rows_ = n;
    }
    return batch_ + static_cast<size_t>(rows_ - n);
  }

 private:
  size_t batch_ = 0;  // first token of the batch
  int32_t rows_ = 0;  // of the first mixture
};

// Replaces a model's choices by those of a trace. The trace repeats at its end, and its layers
// repeat if the model has more. Where it has no choice for a token, the router's stay.
class ExpertReplay {
 public:
  explicit ExpertReplay(ExpertTrace trace) : trace_(std::move(trace)) {}
  // `ascending`: as in RoutingHook. Errors: check_experts().
  [[nodiscard]] Status attach(const model::Program& program, session::Executor& executor,
                              bool ascending = false);

 private:
  void replace(int32_t mixture, int32_t n_tokens, int32_t n_used, session::Choice* choices);

  ExpertTrace trace_;
  BatchTokens tokens_;
};

// Records the choices of a model's mixtures.
class ExpertRecorder {
 public:
  // Errors: kInvalidArgument, if the model has no mixture of experts.
  [[nodiscard]] Status attach(const model::Program& program, session::Executor& executor);
  // The trace as text.
  [[nodiscard]] std::string text() const;

 private:
  void record(int32_t mixture, int32_t n_tokens, int32_t n_used, const session::Choice* choices);

  ExpertTrace trace_;
  BatchTokens tokens_;
};

}  // namespace sluice::cli

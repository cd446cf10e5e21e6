// What a model is compared with: another program or another model, behind one interface.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "session/session.h"

namespace sluice::measure {

// A text in chunks of n_ctx tokens. Scored are the positions of the second half of each, as
// llama-perplexity does: from n_ctx / 2 to n_ctx - 2, each by the token that follows it.
struct Chunks {
  int32_t n_ctx = 0, n_chunks = 0, n_vocab = 0;
  std::vector<session::Token> tokens;  // [n_chunks][n_ctx]

  [[nodiscard]] int32_t rows_per_chunk() const { return n_ctx - 1 - n_ctx / 2; }
};

// Tokens per second of 128 prompt tokens and 32 generated ones, the mean of three runs; 0: unknown.
struct Rates {
  double prefill = 0, decode = 0;
};
inline constexpr int32_t kRatePrompt = 128, kRateGenerated = 32, kRateRepeats = 3;

// The text without white space at its end, which programs add.
[[nodiscard]] inline std::string_view trim_end(std::string_view text) {
  while (!text.empty() && static_cast<unsigned char>(text.back()) <= ' ') text.remove_suffix(1);
  return text;
}

class Baseline {
 public:
  Baseline() = default;
  virtual ~Baseline() = default;
  Baseline(const Baseline&) = delete;
  Baseline& operator=(const Baseline&) = delete;

  [[nodiscard]] virtual std::string name() const = 0;
  // The text of the `n` likeliest tokens after the prompt. kNotFound: this baseline cannot say.
  [[nodiscard]] virtual Result<std::string> greedy(const std::string& prompt, int32_t n) = 0;
  // Begins a text; next_row() then gives the log-probabilities of its scored positions.
  [[nodiscard]] virtual Result<Chunks> begin(const std::string& text, int32_t n_ctx,
                                             int32_t n_chunks) = 0;
  [[nodiscard]] virtual Status next_row(std::vector<float>* log_probs) = 0;
  // The largest error of the log-probabilities' storage.
  [[nodiscard]] virtual double rounding() const { return 0; }
  [[nodiscard]] virtual Result<Rates> rates() = 0;
};

}  // namespace sluice::measure

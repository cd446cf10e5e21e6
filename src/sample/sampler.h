// Choosing the next token: pure functions of logits, recent tokens, parameters and RNG state, so
// the same seed gives the same text on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"

namespace sluice::sample {

using Token = int32_t;

struct Params {
  float temperature = 0.8f;     // 0: greedy (the most likely after penalties and biases)
  int32_t top_k = 40;           // 0: all
  float top_p = 0.95f;          // 1: off
  float min_p = 0.05f;          // 0: off; relative to the most likely token's probability
  float repeat_penalty = 1.0f;  // 1: off; divides positive and multiplies negative logits
  float frequency_penalty = 0;  // subtracted once per occurrence
  float presence_penalty = 0;   // subtracted once when present
  int32_t penalty_last_n = 64;  // window of the penalties, in tokens; -1: all
  uint64_t seed = 0;
  std::vector<std::pair<Token, float>> logit_bias;
};

// Errors: kInvalidArgument, naming the value.
[[nodiscard]] Status validate(const Params& params, int64_t n_vocab);

struct Candidate {
  Token token;
  float logprob;  // natural log of the probability under the unmodified softmax
};

class Sampler {
 public:
  // Allocates its scratch for n_vocab here; nothing per token.
  Sampler(const Params& params, int64_t n_vocab);

  // Picks the next token. `logits` [n_vocab] is modified (penalties and biases are applied);
  // `history` is the sequence so far, prompt included. Ties go to the lower id.
  [[nodiscard]] Token sample(std::span<float> logits, std::span<const Token> history);

  [[nodiscard]] uint64_t memory_bytes() const;

 private:
  struct Entry {
    float logit;
    Token token;
  };
  void apply_penalties(std::span<float> logits, std::span<const Token> history);
  size_t gather(std::span<const float> logits);
  size_t cut(size_t n, bool sorted, float max);

  Params params_;
  uint64_t rng_[4];
  std::vector<Entry> entries_;
};

// The n most likely tokens with log-probabilities of the raw logits, best first, and the
// log-probability of `chosen` (last element).
[[nodiscard]] std::vector<Candidate> top_logprobs(std::span<const float> logits, int n,
                                                  Token chosen);

}  // namespace sluice::sample

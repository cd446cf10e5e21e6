// Samples the next token. The result depends only on logits, recent tokens, parameters and RNG
// state, so the same seed gives the same text on every machine. The logits are never modified, so
// log-probabilities can be computed from them afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/aligned.h"
#include "base/status.h"

namespace sluice::sample {

using Token = int32_t;

inline constexpr Token kNoToken = -1;
inline constexpr size_t kMaxLogitBias = 1024;  // entries

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
  std::vector<std::pair<Token, float>> logit_bias;  // added; minus infinity bans the token
};

// Checks the parameters. Errors: kInvalidArgument, naming the value.
[[nodiscard]] Status validate(const Params& params, int64_t n_vocab);

// Parses a decimal seed from -2^63 to 2^64 - 1. It is taken modulo 2^64, so -1 is the same seed as
// 2^64 - 1. Errors: kInvalidArgument.
[[nodiscard]] Result<uint64_t> parse_seed(std::string_view text);

// Whether any penalty changes logits.
[[nodiscard]] bool penalizes(const Params& params);

struct Candidate {
  Token token;
  float logprob;  // natural log of its probability
};

class Sampler {
 public:
  // Maximum bytes that a sampler holds, for any parameters.
  [[nodiscard]] static uint64_t memory_bytes(int64_t n_vocab);

  // Allocates all scratch memory for n_vocab; nothing is allocated per token. `params` must be
  // valid.
  Sampler(const Params& params, int64_t n_vocab);
  // False if the allocation failed; sample() then returns kNoToken.
  [[nodiscard]] bool allocated() const { return entries_.size() > 0; }

  // Samples a token from `logits` [n_vocab]. `history`: all tokens so far, prompt included.
  // `allowed`: a bit for each token that may be sampled; empty: all may. Ties go to the lower id.
  // Returns kNoToken if all tokens are banned or no logit is a number.
  [[nodiscard]] Token sample(std::span<const float> logits, std::span<const Token> history,
                             std::span<const uint64_t> allowed = {});
  // The next `out.size()` numbers that sample() will draw with, rounded to f32; it draws one for
  // each token unless it is greedy. skip() passes over one of them, for a token that was sampled
  // elsewhere.
  void peek(std::span<float> out) const;
  void skip();
  // As the function top_logprobs(), from the distribution that the last sample() drew from: after
  // all parameters, without the tokens that it excluded.
  [[nodiscard]] std::vector<Candidate> top_logprobs(int n, Token chosen) const;

 private:
  void adjust(std::span<const float> logits, std::span<const Token> history,
              std::span<const uint64_t> allowed);
  void penalize(std::span<const Token> history);
  size_t cut(size_t n, bool sorted, float max);

  Params params_;
  uint64_t rng_[4];
  AlignedBuffer entries_;  // Candidate [n_vocab]
  size_t n_kept_ = 0;      // entries that the last sample() drew from
};

// The n likeliest tokens with log-probabilities from the raw logits, best first. The last element
// is the log-probability of `chosen`.
[[nodiscard]] std::vector<Candidate> top_logprobs(std::span<const float> logits, int n,
                                                  Token chosen);

}  // namespace sluice::sample

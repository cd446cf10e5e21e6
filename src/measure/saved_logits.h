// The file that llama-perplexity writes with --save-all-logits: the log-probabilities of every
// token at the second half of each chunk of a text. Little-endian:
//
//   "_logits_"   i32 context, i32 vocabulary, i32 chunks, i32 token [chunks][context]
//   per chunk, for each of context - 1 - context / 2 positions from context / 2 on:
//     f32 step, f32 least, u16 value [vocabulary, rounded up to even]
//
// A log-probability is least + step * value. What lies more than 16 below the largest is stored as
// the value 0. The file is untrusted: its sizes are limited and must match its length.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "base/status.h"

namespace sluice::measure {

class SavedLogits {
 public:
  // Errors: kNotFound; kBadHeader for a file of another kind, sizes beyond the limits, or a file
  // that is not as long as its header says.
  [[nodiscard]] static Result<SavedLogits> open(const std::string& path);

  [[nodiscard]] int32_t n_ctx() const { return n_ctx_; }
  [[nodiscard]] int32_t n_vocab() const { return n_vocab_; }
  [[nodiscard]] int32_t n_chunks() const { return n_chunks_; }
  // All chunks, one behind another. llama-perplexity replaces the first token of each by BOS if the
  // model adds one.
  [[nodiscard]] const std::vector<int32_t>& tokens() const { return tokens_; }
  // Reads the next row of n_vocab log-probabilities; kAbsent where a value was cut off.
  // Errors: kIo at the end, kBadHeader for a step that is no number.
  [[nodiscard]] Status next_row(std::vector<float>* log_probs);
  // The largest rounding error of the rows so far: half of a step.
  [[nodiscard]] double rounding() const { return rounding_; }

  static constexpr float kAbsent = -1e3f;

 private:
  std::ifstream file_;
  int32_t n_ctx_ = 0, n_vocab_ = 0, n_chunks_ = 0;
  std::vector<int32_t> tokens_;
  std::vector<uint16_t> row_;
  double rounding_ = 0;
};

}  // namespace sluice::measure

// Second moments of the inputs of each matrix: sums of x x^T over the tokens of a text. They are
// the Hessian of the squared error of the matrix's outputs. Only columns of one span count as
// correlated, so memory grows with columns times span. Matrices with the same inputs share one.
// Each expert of a mixture has its own, of the tokens routed to it, or all of a layer share one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "gguf/gguf.h"

namespace sluice::convert {

inline constexpr uint64_t kMinSpan = 256, kMaxSpan = 1024;  // columns; whole blocks of every type

class Hessian {
 public:
  // `span` is a multiple of kMinSpan.
  Hessian(uint64_t cols, uint64_t span);

  // Adds n rows of inputs, row t at x + t * ld. The sums do not depend on the number of threads.
  void add(const float* x, int64_t ld, int32_t n, ThreadPool* pool);
  // Adds the sums of `other`, which has the same columns and span, times `factor`.
  void add(const Hessian& other, double factor);

  [[nodiscard]] uint64_t cols() const { return cols_; }
  [[nodiscard]] double tokens() const { return tokens_; }  // rows added
  [[nodiscard]] uint64_t span() const { return span_; }
  [[nodiscard]] uint64_t n_spans() const { return (cols_ + span_ - 1) / span_; }
  [[nodiscard]] uint64_t span_cols(uint64_t index) const {
    return std::min(span_, cols_ - index * span_);
  }
  // The lower triangle of span `index`, by rows: entry (i, j), j <= i, at i (i + 1) / 2 + j.
  [[nodiscard]] std::span<const float> triangle(uint64_t index) const;
  [[nodiscard]] uint64_t bytes() const { return sums_.size() * sizeof(float); }
  [[nodiscard]] static uint64_t bytes_for(uint64_t cols, uint64_t span);

 private:
  uint64_t cols_, span_;
  double tokens_ = 0;
  std::vector<float> sums_;  // triangles, one after another
};

// Of the matrices of a tensor: one for all of them, or one for each expert. Null: an expert without
// tokens.
using TensorHessians = std::vector<std::shared_ptr<const Hessian>>;

// The sum over all experts; null if no expert has tokens.
[[nodiscard]] std::unique_ptr<Hessian> sum_of(const TensorHessians& experts);
// An expert's own inputs, and kPriorTokens inputs as those of all experts are on average. The sums
// of few tokens say little about the directions that these tokens lack, where errors would be free.
// An expert without tokens has the average alone. Inputs of `down` have no common directions, so
// there the average adds to the diagonal.
inline constexpr double kPriorTokens = 32;
[[nodiscard]] Hessian with_prior(const Hessian* expert, const Hessian& all);

// By the name of the matrix's tensor.
class Hessians {
 public:
  void set(std::string name, TensorHessians hessians);
  // Null if there are none for `tensor`.
  [[nodiscard]] const TensorHessians* find(const gguf::Tensor& tensor) const;
  // Bytes held; shared ones count once.
  [[nodiscard]] uint64_t bytes() const;
  // Bytes that quantizing holds besides: the factors of the widest matrix, and of experts the sum
  // and one with the prior.
  [[nodiscard]] uint64_t factor_bytes() const;
  [[nodiscard]] uint64_t max_cols() const;

 private:
  std::map<std::string, TensorHessians, std::less<>> by_name_;
};

}  // namespace sluice::convert

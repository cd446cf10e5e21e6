// Second moments of the inputs of each matrix: sums of x x^T over the tokens of a text. They are
// the Hessian of the squared error of the matrix's outputs. Only columns of one span count as
// correlated, so memory grows with columns times span. Matrices with the same inputs share one.
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

  [[nodiscard]] uint64_t cols() const { return cols_; }
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
  std::vector<float> sums_;  // triangles, one after another
};

// By the name of the matrix's tensor.
class Hessians {
 public:
  void set(std::string name, std::shared_ptr<const Hessian> hessian);
  // Null if there is none for `tensor`.
  [[nodiscard]] const Hessian* find(const gguf::Tensor& tensor) const;
  // Bytes held; shared ones count once.
  [[nodiscard]] uint64_t bytes() const;
  // Bytes that quantizing holds besides: the factors of the widest matrix.
  [[nodiscard]] uint64_t factor_bytes() const;
  [[nodiscard]] uint64_t max_cols() const;

 private:
  std::map<std::string, std::shared_ptr<const Hessian>, std::less<>> by_name_;
};

}  // namespace sluice::convert

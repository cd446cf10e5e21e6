// Collects an importance matrix: mean squares of each matrix's inputs, by column. An expert's
// statistics come from its own tokens only.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "convert/imatrix.h"
#include "session/session.h"

namespace sluice::measure {

// The place of `mat` among the matrices of its tensor, such as experts.
[[nodiscard]] inline uint64_t matrix_of(const model::Mat& mat) {
  return static_cast<uint64_t>(mat.row0 / mat.slice_rows);
}

class ImatrixCollector {
 public:
  explicit ImatrixCollector(const gguf::Header& header) : header_(header) {}

  // Inputs of `mat`: row t of n at x + t * ld.
  void add(const model::Mat& mat, const float* x, int64_t ld, int32_t n) {
    const gguf::Tensor* t = header_.find_tensor(mat.name);
    if (t == nullptr || static_cast<uint64_t>(mat.cols) != t->ne[0]) return;
    Sums& sums = by_name_[t->name];
    const auto cols = static_cast<size_t>(mat.cols);
    sums.squares.resize(cols * t->ne[2]);
    sums.rows.resize(t->ne[2]);
    const uint64_t which = matrix_of(mat);
    if (which >= t->ne[2]) return;
    double* to = sums.squares.data() + which * cols;
    for (int32_t row = 0; row < n; ++row) {
      for (size_t c = 0; c < cols; ++c) {
        const double v = x[row * ld + static_cast<int64_t>(c)];
        to[c] += v * v;
      }
    }
    sums.rows[which] += n;
  }

  [[nodiscard]] Result<convert::Imatrix> importance() const {
    convert::Imatrix out;
    for (const auto& [name, sums] : by_name_) {
      std::vector<float> moments(sums.squares.size());
      const size_t columns = moments.size() / sums.rows.size();
      for (size_t i = 0; i < moments.size(); ++i) {
        const double rows = sums.rows[i / columns];  // 0: an expert that was never selected
        moments[i] = rows > 0 ? static_cast<float>(sums.squares[i] / rows) : 1;
      }
      SLUICE_RETURN_IF_ERROR(out.set(std::string(name), std::move(moments)));
    }
    return out;
  }

 private:
  struct Sums {
    std::vector<double> squares;  // [matrices][columns]
    std::vector<double> rows;     // [matrices]
  };

  const gguf::Header& header_;
  std::map<std::string_view, Sums> by_name_;
};

}  // namespace sluice::measure

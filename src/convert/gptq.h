// Error feedback along the rows of a matrix, as in GPTQ (Frantar et al., 2023) and LDLQ (Chee et
// al., QuIP, 2023): columns are quantized in order, and each later column compensates the error of
// the earlier ones on the outputs.
//
// With the Hessian H = M D M^T of a span, M unit upper triangular and D diagonal, the error e of a
// row costs e H e^T = sum_i D_i (e_i + sum_{k<i} e_k M_ki)^2. So column i is quantized to the value
// nearest to w_i + sum_{k<i} e_k M_ki. Codebooks have entries for up to eight values, so an octet
// of columns is quantized together, with the same decomposition into blocks of eight columns.
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "convert/hessian.h"

namespace sluice::convert {

// The factors of one span of a Hessian, with a tenth of its mean diagonal added to the
// diagonal.
struct SpanFactors {
  static constexpr uint64_t kOctet = 8;

  uint64_t first = 0, cols = 0;
  std::vector<float> feedback;  // M_ki at i (i - 1) / 2 + k for k < i
  std::vector<float> weights;   // [cols] the diagonal of D
  // The same for octets: zero where k and i are in one octet.
  std::vector<float> octet_feedback, octet_weights;

  // Bytes of the factors of all spans, and of computing them.
  [[nodiscard]] static uint64_t bytes_for(const Hessian& hessian);
};

// One for each span.
[[nodiscard]] std::vector<SpanFactors> factorize(const Hessian& hessian, ThreadPool* pool);

}  // namespace sluice::convert

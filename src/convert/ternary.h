// Fits codes -1, 0 and 1: values nearest to zero become zero, and the best threshold is found
// exactly.
#pragma once

#include "convert/error_weights.h"

namespace sluice::convert {
namespace {

struct Weighed {
  float size, w;
};
// Shell sort, largest first: little code, and a bounded number of steps for 256 or 64 values.
template <int N>
void sort_down(Weighed* v) {
  for (const int gap : {132, 57, 23, 10, 4, 1}) {
    for (int i = gap; i < N; ++i) {
      const Weighed x = v[i];
      int j = i;
      for (; j >= gap && v[j - gap].size < x.size; j -= gap) v[j] = v[j - gap];
      v[j] = x;
    }
  }
}

template <int N>
float fit_ternary(const float* x, const float* w) {
  Weighed sorted[N];
  for (int i = 0; i < N; ++i) sorted[i] = {size_of(x[i]), w[i]};
  sort_down<N>(sorted);
  double sum = 0, weight = 0, best = 0, d = 0;
  // With the first values at +-d, the error falls by sum^2 / weight.
  for (const Weighed& v : sorted) {
    sum += static_cast<double>(v.w) * v.size;
    weight += v.w;
    if (weight > 0 && sum * sum / weight > best) {
      best = sum * sum / weight;
      d = sum / weight;
    }
  }
  return static_cast<float>(d);
}
// Codes of one block, and its scale.
template <int N>
f16 ternary_codes(const float* x, const float* w, uint8_t* q) {
  const float d = from_f16(to_f16(fit_ternary<N>(x, w))), half = d / 2;
  Length<1, N> length;
  for (int i = 0; i < N; ++i) {
    q[i] = static_cast<uint8_t>(half == 0 || size_of(x[i]) <= half ? 1 : x[i] > 0 ? 2 : 0);
    using One = Lanes<1>;
    length.add(One{x[i]}, One{d * static_cast<float>(q[i] - 1)}, One{w[i]});
  }
  return to_f16(d < kMinNormal ? d : d * length.stretch_of_power());
}

}  // namespace
}  // namespace sluice::convert

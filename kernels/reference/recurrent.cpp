// The recurrent layers' functions in double, one token and one state entry after the other.
#include <cmath>
#include <vector>

#include "kernels/reference/reference.h"

namespace sluice::kernels::reference {

void convolve(const ConvArgs& a, double* out) {
  const int32_t past = a.n_taps - 1;
  for (int32_t t = 0; t < a.n_tokens; ++t) {
    for (int64_t c = 0; c < a.n_channels; ++c) {
      double sum = a.bias == nullptr ? 0.0 : double{a.bias[c]};
      for (int32_t j = 0; j <= past; ++j) {
        const int64_t from = t - past + j;
        const double x =
            from < 0 ? a.before[(past + from) * a.ld_before + c] : a.x[from * a.ld + c];
        sum += x * a.weights[j * a.ld_weights + c];
      }
      out[t * a.n_channels + c] = a.silu ? silu(sum) : sum;
    }
  }
}

void update_state(const StateArgs& a, double* after, double* out) {
  const int64_t n_v = a.n_columns;
  double* s = after;
  for (int64_t i = 0; i < a.n_keys; ++i) {
    for (int64_t j = 0; j < n_v; ++j) s[i * n_v + j] = a.before[i * a.ld + j];
  }
  for (int32_t t = 0; t < a.n_tokens; ++t) {
    const auto decay = [&](int64_t i) -> double { return a.decay.row(t)[a.decay_per_key ? i : 0]; };
    double skip = a.skip;
    for (int64_t i = 0; i < a.n_keys && a.kind == StateKind::kBonus; ++i) {
      skip += double{a.r.row(t)[i]} * a.k.row(t)[i] * a.bonus[i];
    }
    for (int64_t j = 0; j < n_v; ++j) {
      double v = a.v.row(t)[j], removed = 0, y = skip * v;
      for (int64_t i = 0; i < a.n_keys; ++i) {
        const double state = s[i * n_v + j];
        if (a.kind == StateKind::kDelta) v -= a.k.row(t)[i] * (decay(i) * state);
        if (a.kind == StateKind::kGeneral) removed += a.a.row(t)[i] * state;
      }
      if (a.beta.at != nullptr) v *= *a.beta.row(t);
      for (int64_t i = 0; i < a.n_keys; ++i) {
        double& state = s[i * n_v + j];
        const double former = state;
        state = decay(i) * state + a.k.row(t)[i] * v;
        if (a.kind == StateKind::kGeneral) state += a.b.row(t)[i] * removed;
        y += a.r.row(t)[i] * (a.kind == StateKind::kBonus ? former : state);
      }
      out[t * n_v + j] = y;
    }
  }
}

void scan(const ScanArgs& a, double* after, double* out) {
  const int64_t n = a.n_columns;
  for (int64_t i = 0; i < a.n_state; ++i) {
    for (int64_t c = 0; c < n; ++c) after[i * n + c] = a.before[i * a.ld + c];
  }
  for (int32_t t = 0; t < a.n_tokens; ++t) {
    for (int64_t c = 0; c < n; ++c) {
      const double dt = a.dt.row(t)[c], x = a.x.row(t)[c];
      double y = x * a.d[c];
      for (int64_t i = 0; i < a.n_state; ++i) {
        double& s = after[i * n + c];
        s = std::exp(dt * a.a[i * a.ld_a + c]) * s + a.b.row(t)[i] * dt * x;
        y += a.c.row(t)[i] * s;
      }
      out[t * n + c] = y;
    }
  }
}

}  // namespace sluice::kernels::reference

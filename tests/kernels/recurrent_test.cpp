// Recurrent layers of every table that this machine runs: compared with the papers' formulas in
// double, and bit-identical however columns and tokens are split over calls. Rows have gaps between
// them, which are never touched.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/tables_util.h"

namespace sluice::kernels {
namespace {

constexpr float kUnset = std::numeric_limits<float>::quiet_NaN();
constexpr double kBudget = 2e-5;  // for values around 1 after dozens of roundings
constexpr int32_t kColumns[] = {1, 3, 4, 7, 8, 15, 16, 31, 33, 64, 65, 100, 128};

using Floats = std::vector<float>;

// Rows of n values, `stride` apart: random values, and NaN in the gaps.
struct Rows {
  Rows(std::mt19937& rng, int64_t count, int64_t n, float sigma, float mean = 0)
      : stride(n + 1 + static_cast<int64_t>(rng() % 9)), width(n) {
    std::normal_distribution<float> distribution(mean, sigma);
    values.assign(static_cast<size_t>(count * stride), kUnset);
    for (int64_t t = 0; t < count; ++t) {
      for (int64_t i = 0; i < n; ++i)
        values[static_cast<size_t>(t * stride + i)] = distribution(rng);
    }
  }
  void map(float (*f)(float)) {
    for (float& x : values) x = f(x);  // NaN stays NaN
  }
  [[nodiscard]] TokenRows rows(int64_t column = 0, int64_t token = 0) const {
    return {values.data() + token * stride + column, stride};
  }
  float* at(int64_t column = 0, int64_t token = 0) {
    return values.data() + token * stride + column;
  }
  int64_t stride, width;
  Floats values;
};

void expect_close(const Rows& got, const std::vector<double>& expected, const char* what) {
  const int64_t n = got.width, count = static_cast<int64_t>(expected.size()) / n;
  double size = 1;
  for (const double x : expected) size = std::max(size, std::fabs(x));
  for (int64_t t = 0; t < count; ++t) {
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_NEAR(got.values[static_cast<size_t>(t * got.stride + i)],
                  expected[static_cast<size_t>(t * n + i)], kBudget * size)
          << what << ", row " << t << " of " << count << ", column " << i << " of " << n;
    }
    for (int64_t i = n; i < got.stride; ++i) {
      ASSERT_TRUE(std::isnan(got.values[static_cast<size_t>(t * got.stride + i)])) << what;
    }
  }
}

bool same(const Rows& a, const Rows& b) {
  return std::memcmp(a.values.data(), b.values.data(), a.values.size() * sizeof(float)) == 0;
}

// Splits [0, n) at a random position; calls body(first, count) for both parts, or for all of it.
template <typename Body>
void in_parts(std::mt19937& rng, int32_t n, bool cut, Body body) {
  const int32_t at = cut ? static_cast<int32_t>(rng() % static_cast<uint32_t>(n)) : 0;
  if (at > 0) body(0, at);
  body(at, n - at);
}

TEST(Recurrent, Convolution) {
  for (const Table* table : tables()) {
    for (const int32_t n : kColumns) {
      for (const int32_t taps : {1, 2, 3, 4, 7}) {
        for (const int32_t n_tokens : {1, 2, 3, 9}) {
          std::mt19937 rng(static_cast<uint32_t>(n * 100 + taps * 10 + n_tokens));
          Rows x(rng, n_tokens, n, 1), before(rng, taps, n, 1), weights(rng, taps, n, 0.5f);
          const Rows bias(rng, 1, n, 1);
          for (const int variant : {0, 1, 2, 3}) {
            ConvArgs a{};
            a.bias = (variant & 1) != 0 ? bias.values.data() : nullptr;
            a.silu = (variant & 2) != 0;
            a.n_channels = n;
            a.n_taps = taps;
            a.n_tokens = n_tokens;
            a.ld_before = before.stride;
            a.ld_weights = weights.stride;
            Rows whole = x, cut = x;
            a.x = whole.at();
            a.ld = whole.stride;
            a.before = before.at();
            a.weights = weights.at();
            std::vector<double> expected(static_cast<size_t>(n) * static_cast<size_t>(n_tokens));
            reference::convolve(a, expected.data());
            table->convolve(a);
            ASSERT_NO_FATAL_FAILURE(expect_close(whole, expected, table->name));
            in_parts(rng, n, true, [&](int32_t first, int32_t count) {
              ConvArgs part = a;
              part.x = cut.at(first);
              part.before += first;
              part.weights += first;
              if (part.bias != nullptr) part.bias += first;
              part.n_channels = count;
              table->convolve(part);
            });
            ASSERT_TRUE(same(whole, cut)) << table->name << ", " << n << " channels";
          }
        }
      }
    }
  }
}

struct StateProblem {
  StateProblem(StateKind kind, int32_t n_keys, int32_t n, int32_t n_tokens, bool per_key,
               uint32_t seed)
      : rng(seed),
        keys(n_keys),
        columns(n),
        tokens(n_tokens),
        before(rng, n_keys, n, 1),
        r(rng, n_tokens, n_keys, 0.3f),
        k(rng, n_tokens, n_keys, 0.3f),
        a(rng, n_tokens, n_keys, 0.3f),
        b(rng, n_tokens, n_keys, 0.3f),
        v(rng, n_tokens, n, 1),
        decay(rng, n_tokens, per_key ? n_keys : 1, 1),
        beta(rng, n_tokens, 1, 1),
        bonus(rng, 1, n_keys, 1) {
    decay.map([](float x) { return 1 / (1 + std::exp(-x)); });
    beta.map([](float x) { return 1 / (1 + std::exp(-x)); });
    args.kind = kind;
    args.n_keys = n_keys;
    args.n_columns = n;
    args.n_tokens = n_tokens;
    args.r = r.rows();
    args.k = k.rows();
    args.v = v.rows();
    args.decay = decay.rows();
    args.decay_per_key = per_key;
    if (kind != StateKind::kBonus && kind != StateKind::kGeneral) args.beta = beta.rows();
    if (kind == StateKind::kGeneral) {
      args.a = a.rows();
      args.b = b.rows();
    }
    args.bonus = kind == StateKind::kBonus ? bonus.values.data() : nullptr;
    args.skip = kind == StateKind::kPlain ? 0.7f : 0.0f;
    args.before = before.at();
    args.ld = before.stride;
  }

  // Everything in one call, or split by columns and tokens.
  void run(const Table& table, bool cut, Rows* state, Rows* out) {
    in_parts(rng, columns, cut, [&](int32_t c, int32_t n) {
      in_parts(rng, tokens, cut, [&](int32_t t, int32_t count) {
        StateArgs part = args;
        const auto advance = [t](TokenRows& rows) {
          if (rows.at != nullptr) rows.at += t * rows.stride;
        };
        for (TokenRows* rows :
             {&part.r, &part.k, &part.a, &part.b, &part.v, &part.decay, &part.beta}) {
          advance(*rows);
        }
        part.v.at += c;
        part.n_columns = n;
        part.n_tokens = count;
        part.after = state->at(c);
        part.before = t == 0 ? args.before + c : part.after;
        part.out = out->at(c, t);
        part.out_stride = out->stride;
        table.update_state(part);
      });
    });
  }

  std::mt19937 rng;
  int32_t keys, columns, tokens;
  Rows before, r, k, a, b, v, decay, beta, bonus;
  StateArgs args{};
};

TEST(Recurrent, States) {
  const auto check = [](const Table& table, StateKind kind, int32_t n_keys, int32_t n,
                        int32_t n_tokens, bool per_key) {
    const uint32_t seed = static_cast<uint32_t>(n_keys * 1000 + n * 10 + n_tokens);
    StateProblem problem(kind, n_keys, n, n_tokens, per_key, seed);
    Rows state = problem.before, out(problem.rng, n_tokens, n, 1);
    Rows cut_state = state, cut_out = out;
    problem.run(table, false, &state, &out);
    problem.run(table, true, &cut_state, &cut_out);
    std::vector<double> after(static_cast<size_t>(n_keys) * static_cast<size_t>(n));
    std::vector<double> expected(static_cast<size_t>(n_tokens) * static_cast<size_t>(n));
    reference::update_state(problem.args, after.data(), expected.data());
    ASSERT_NO_FATAL_FAILURE(expect_close(state, after, "state"));
    ASSERT_NO_FATAL_FAILURE(expect_close(out, expected, "output"));
    ASSERT_TRUE(same(state, cut_state));
    ASSERT_TRUE(same(out, cut_out));
  };
  for (const Table* table : tables()) {
    for (const StateKind kind :
         {StateKind::kPlain, StateKind::kDelta, StateKind::kGeneral, StateKind::kBonus}) {
      for (const int32_t n : kColumns) {
        for (const int32_t n_keys : {1, 5, 16, 64}) {
          for (const int32_t n_tokens : {1, 2, 6}) {
            SCOPED_TRACE(std::string(table->name) + ", kind " +
                         std::to_string(static_cast<int>(kind)));
            for (const bool per_key : {false, true}) {
              ASSERT_NO_FATAL_FAILURE(check(*table, kind, n_keys, n, n_tokens, per_key));
            }
          }
        }
      }
    }
  }
}

TEST(Recurrent, Scan) {
  for (const Table* table : tables()) {
    for (const int32_t n : kColumns) {
      for (const int32_t n_state : {1, 8, 16}) {
        for (const int32_t n_tokens : {1, 2, 6}) {
          std::mt19937 rng(static_cast<uint32_t>(n * 1000 + n_state * 10 + n_tokens));
          Rows before(rng, n_state, n, 1), dt(rng, n_tokens, n, 0.3f), x(rng, n_tokens, n, 1);
          Rows b(rng, n_tokens, n_state, 1), c(rng, n_tokens, n_state, 1);
          Rows rates(rng, n_state, n, 1), skip(rng, 1, n, 1);
          dt.map([](float v) { return std::fabs(v); });
          rates.map([](float v) { return -std::fabs(v); });
          ScanArgs a{};
          a.before = before.at();
          a.ld = before.stride;
          a.n_state = n_state;
          a.n_columns = n;
          a.n_tokens = n_tokens;
          a.dt = dt.rows();
          a.x = x.rows();
          a.b = b.rows();
          a.c = c.rows();
          a.a = rates.at();
          a.ld_a = rates.stride;
          a.d = skip.at();
          const auto run = [&](bool cut, Rows* state, Rows* out) {
            in_parts(rng, n, cut, [&](int32_t first, int32_t count) {
              in_parts(rng, n_tokens, cut, [&](int32_t t, int32_t n_part) {
                ScanArgs part = a;
                part.after = state->at(first);
                part.before = t == 0 ? a.before + first : part.after;
                part.n_columns = count;
                part.n_tokens = n_part;
                part.dt = dt.rows(first, t);
                part.x = x.rows(first, t);
                part.b = b.rows(0, t);
                part.c = c.rows(0, t);
                part.a += first;
                part.d += first;
                part.out = out->at(first, t);
                part.out_stride = out->stride;
                table->scan(part);
              });
            });
          };
          Rows state = before, out(rng, n_tokens, n, 1);
          Rows cut_state = state, cut_out = out;
          run(false, &state, &out);
          run(true, &cut_state, &cut_out);
          std::vector<double> after(static_cast<size_t>(n_state) * static_cast<size_t>(n));
          std::vector<double> expected(static_cast<size_t>(n_tokens) * static_cast<size_t>(n));
          reference::scan(a, after.data(), expected.data());
          ASSERT_NO_FATAL_FAILURE(expect_close(state, after, table->name));
          ASSERT_NO_FATAL_FAILURE(expect_close(out, expected, table->name));
          ASSERT_TRUE(same(state, cut_state)) << table->name;
          ASSERT_TRUE(same(out, cut_out)) << table->name;
        }
      }
    }
  }
}

TEST(Recurrent, L2NormAndElementwiseFunctions) {
  for (const Table* table : tables()) {
    for (int64_t n = 1; n <= 67; ++n) {
      std::mt19937 rng(static_cast<uint32_t>(n));
      const Rows x(rng, 1, n, 4);
      std::vector<double> expected(static_cast<size_t>(n));
      for (const float eps : {1e-6f, 1000.0f}) {  // below and above the norm
        Rows out = x;
        table->l2_norm(x.values.data(), 0.25f, eps, n, out.at());
        reference::l2_norm(x.values.data(), 0.25, double{eps}, n, expected.data());
        ASSERT_NO_FATAL_FAILURE(expect_close(out, expected, "l2_norm"));
      }
      const struct {
        const char* name;
        void (*ours)(const float*, int64_t, float*);
        double (*theirs)(double);
      } functions[] = {
          {"sigmoid", table->sigmoid, [](double v) { return 1 / (1 + std::exp(-v)); }},
          {"tanh", table->tanh, [](double v) { return std::tanh(v); }},
          {"softplus", table->softplus, reference::softplus},
      };
      for (const auto& f : functions) {
        Rows out = x;
        f.ours(x.values.data(), n, out.at());
        for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
          expected[i] = f.theirs(double{x.values[i]});
        }
        ASSERT_NO_FATAL_FAILURE(expect_close(out, expected, f.name));
      }
    }
    // The whole range, relative to the value: the tails must not vanish.
    for (float v = -80; v < 80; v += 0.0173f) {
      float y = 0;
      table->softplus(&v, 1, &y);
      const double expected = reference::softplus(double{v});
      ASSERT_NEAR(y, expected, 1e-6 * expected) << table->name << " softplus " << v;
      table->exp(&v, 1, &y);
      ASSERT_NEAR(y, std::exp(double{v}), 3e-7 * std::exp(double{v})) << table->name << " " << v;
    }
  }
}

}  // namespace
}  // namespace sluice::kernels

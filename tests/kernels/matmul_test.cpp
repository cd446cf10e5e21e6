// Matrix multiplication of every type on every table that this machine runs: compared with the
// double-precision reference within the type's error budget, and bit-identical for any layout (file
// or packed), alignment, number of tokens, or split of the rows.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/matmul_util.h"

namespace sluice::kernels {
namespace {

using Options = Problem::Options;

std::string label(const Table& table, const WeightType& w) {
  return std::string(table.name) + " " + w.name;
}

bool is_decoded(Type type) {
  switch (type) {
#define SLUICE_DECODED_TYPE(NAME, name, id, values, bytes) case Type::k##NAME:
#include "kernels/types.def"
    return true;
    default:
      return false;
  }
}

// Calls f(table, type) for all pairs; each must be supported.
template <class F>
void for_all(const F& f) {
  for (const Table* table : tables()) {
    for (const WeightType& w : weight_types()) {
      SCOPED_TRACE(label(*table, w));
      ASSERT_TRUE(table->supports(w.type));
      f(*table, w);
    }
  }
}

TEST(Matmul, MatchesReferenceWithinBudget) {
  for_all([](const Table& table, const WeightType& w) {
    const int64_t block = reference::block_values(w.type);
    for (int64_t rows : {1, 7, 16, 40}) {
      for (int64_t cols : {block == 1 ? 172 : block, block == 1 ? 37 : 5 * block}) {
        const Problem p(table, w, rows, cols, 9);
        std::vector<double> exact(static_cast<size_t>(rows * p.n_tokens));
        reference::matmul(w.type, p.file.data(), rows, cols, p.x.data(), cols, p.n_tokens,
                          exact.data(), rows);
        const std::vector<float> y = p.run({});
        double error = 0, power = 0;
        for (size_t i = 0; i < exact.size(); ++i) {
          error += (y[i] - exact[i]) * (y[i] - exact[i]);
          power += exact[i] * exact[i];
        }
        // With few values, allow the mean squared rounding error to scatter.
        EXPECT_LE(error, (rows * cols < 2048 ? 4 : 1) * w.budget * power) << rows << "x" << cols;
      }
    }
  });
}

// Codes and activations at their extremes, of one sign and of both. Sums of two products exceed 16
// bits where codes are shifted to be unsigned. All scales are 1, so every result is an exact
// integer.
TEST(Matmul, SignedCodesAtTheirExtremes) {
  for_all([](const Table& table, const WeightType& w) {
    if (w.type != Type::kQ8_0 && w.type != Type::kIQ4_NL) return;
    constexpr int64_t kRows = 19, kCols = 160;
    constexpr int32_t kTokens = 7;
    constexpr uint8_t kEnds[] = {0x80, 0x7f, 0x81, 0xff, 0x00, 0x01};
    Problem p(table, w, kRows, kCols, kTokens);
    std::mt19937 rng(1);
    const size_t block = reference::block_bytes(w.type);
    for (size_t at = 0; at < p.file.size(); at += block) {
      const uint8_t alone = kEnds[rng() % 6];
      const bool mixed = rng() % 2 == 0;
      for (size_t i = 0; i < block; ++i) p.file[at + i] = mixed ? kEnds[rng() % 6] : alone;
      const f16 one = reference::f32_to_f16(1.0f);
      std::memcpy(&p.file[at + w.halves[0]], &one, sizeof one);
    }
    p.packed = pack(table, w.type, p.file, kRows, kCols);
    constexpr float kValues[] = {127, -127, 126, -1, 0};
    for (size_t at = 0; at < p.x.size(); at += 32) {
      const float alone = rng() % 2 == 0 ? 127.0f : -127.0f;
      const bool mixed = rng() % 2 == 0;
      for (size_t i = 0; i < 32; ++i) p.x[at + i] = mixed && i > 0 ? kValues[rng() % 5] : alone;
    }
    std::vector<double> exact(static_cast<size_t>(kRows * kTokens));
    reference::matmul(w.type, p.file.data(), kRows, kCols, p.x.data(), kCols, kTokens, exact.data(),
                      kRows);
    for (const bool packed : {true, false}) {
      Options o;
      o.packed = packed;
      std::vector<float> y = p.run(o);
      for (size_t i = 0; i < exact.size(); ++i) ASSERT_EQ(y[i], exact[i]) << packed << " " << i;
      for (int32_t t = 0; t < kTokens; ++t) {
        o.t0 = t;
        o.n = 1;
        y = p.run(o);
        for (size_t r = 0; r < kRows; ++r) {
          ASSERT_EQ(y[r], exact[static_cast<size_t>(t) * kRows + r]) << packed << " " << t;
        }
      }
    }
  });
}

// All activations at their extremes, with the signs of a row's weights. So the products of that row
// add up to the largest sums that a type can have, which narrow sums must hold.
TEST(Matmul, SumsOfDecodedCodesAtTheirExtremes) {
  for_all([](const Table& table, const WeightType& w) {
    if (!is_decoded(w.type)) return;
    constexpr int64_t kRows = 19, kCols = 768;
    Problem p(table, w, kRows, kCols, kRows);
    p.x.resize(static_cast<size_t>(kRows * kCols));
    table.dequantize(w.type, p.file.data(), kRows * kCols, p.x.data());
    for (float& v : p.x) v = v < 0 ? -127.0f : 127.0f;
    std::vector<double> exact(static_cast<size_t>(kRows * kRows));
    reference::matmul(w.type, p.file.data(), kRows, kCols, p.x.data(), kCols, p.n_tokens,
                      exact.data(), kRows);
    const std::vector<float> y = p.run({});
    for (size_t i = 0; i < exact.size(); ++i) {
      const double largest = exact[i / kRows * (kRows + 1)];  // of the row whose signs they are
      ASSERT_NEAR(y[i], exact[i], 1e-5 * std::abs(largest)) << i;
    }
  });
}

TEST(Matmul, LayoutAndAlignmentDoNotMatter) {
  for_all([](const Table& table, const WeightType& w) {
    const int64_t block = reference::block_values(w.type);
    const Problem p(table, w, 2 * table.row_group + 3, block == 1 ? 75 : 3 * block, 5);
    const std::vector<float> packed = p.run({});
    for (size_t skew = 0; skew < 33; skew += skew < 4 ? 1 : 7) {
      Options o;
      o.packed = false;
      o.skew = skew;
      ASSERT_EQ(p.run(o), packed) << "file layout at offset " << skew;
      std::vector<float> each;  // one token may use the file layout directly
      for (o.n = 1, o.t0 = 0; o.t0 < p.n_tokens; ++o.t0) {
        const std::vector<float> y = p.run(o);
        each.insert(each.end(), y.begin(), y.end());
      }
      ASSERT_EQ(each, packed) << "file layout at offset " << skew << ", token by token";
    }
  });
}

// Row counts that fill no group, one, or several, each with what the last group leaves to prefetch,
// and each group on its own.
TEST(Matmul, OneTokenTimesAnyRowsInFileLayout) {
  for_all([](const Table& table, const WeightType& w) {
    const int64_t block = reference::block_values(w.type), group = table.row_group;
    for (int64_t rows : {int64_t{1}, group - 1, group, group + 1, 3 * group}) {
      for (int64_t cols : {block == 1 ? 33 : block, block == 1 ? 320 : 5 * block}) {
        const Problem p(table, w, rows, cols, 1);
        const std::vector<float> packed = p.run({});
        Options o;
        o.packed = false;
        ASSERT_EQ(p.run(o), packed) << rows << "x" << cols;
        for (o.r0 = 0; o.r0 < rows; o.r0 = o.r1) {
          o.r1 = std::min(rows, o.r0 + group);
          const std::vector<float> part = p.run(o);
          ASSERT_TRUE(std::equal(&part[static_cast<size_t>(o.r0)], part.data() + o.r1,
                                 &packed[static_cast<size_t>(o.r0)]))
              << "rows " << o.r0 << " to " << o.r1 << " of " << rows;
        }
      }
    }
  });
}

TEST(Matmul, OneTokenAtATimeIsTheSame) {
  for_all([](const Table& table, const WeightType& w) {
    const int64_t block = reference::block_values(w.type), rows = table.row_group + 1;
    const Problem p(table, w, rows, block == 1 ? 65 : 2 * block, 23);
    const std::vector<float> all = p.run({});
    for (int32_t n = 1; n <= 9; ++n) {  // every way a tile of tokens can be cut short
      for (int32_t t0 = 0; t0 + n <= p.n_tokens; t0 += n) {
        Options o;
        o.t0 = t0;
        o.n = n;
        const std::vector<float> part = p.run(o);
        const auto first = all.begin() + t0 * rows;
        ASSERT_TRUE(std::equal(part.begin(), part.end(), first)) << n << " tokens from " << t0;
      }
    }
  });
}

TEST(Matmul, PanelsOfRowsAndBatchesOfTokensAreTheSame) {
  for_all([](const Table& table, const WeightType& w) {
    if (w.type != Type::kF16 && w.type != Type::kQ8_0 && w.type != Type::kQ4_K) return;
    // So wide that packed rows and tokens each take more than one panel.
    const Problem p(table, w, 11 * table.row_group + 3, 4096, 37);
    Options file;
    file.packed = false;
    ASSERT_EQ(p.run({}), p.run(file));
  });
}

// More tokens than one decoding of a row group serves, in one batch and in two.
TEST(Matmul, ManyTokensOfDecodedTypesAreTheSame) {
  for_all([](const Table& table, const WeightType& w) {
    if (w.type != Type::kIQ1_M && w.type != Type::kIQ2_XXS) return;
    for (int64_t cols : {256, 4096}) {
      const Problem p(table, w, table.row_group + 3, cols, 300);
      const std::vector<float> all = p.run({});
      Options o;
      for (o.n = 50; o.t0 < p.n_tokens; o.t0 += o.n) {
        const std::vector<float> part = p.run(o);
        ASSERT_TRUE(std::equal(part.begin(), part.end(), all.begin() + o.t0 * p.rows)) << o.t0;
      }
    }
  });
}

TEST(Matmul, SplitsOfTheRowsAreTheSame) {
  for_all([](const Table& table, const WeightType& w) {
    const int64_t block = reference::block_values(w.type), group = table.row_group;
    const Problem p(table, w, 5 * group + 2, 2 * block, 3);
    const std::vector<float> all = p.run({});
    for (bool packed : {true, false}) {
      for (int64_t g = 0; g <= 5; ++g) {
        Options o;
        o.packed = packed;
        o.r0 = g * group;
        o.r1 = std::min(p.rows, o.r0 + group);
        o.fill = -7.0f;
        const std::vector<float> part = p.run(o);
        for (size_t i = 0; i < part.size(); ++i) {
          const int64_t row = static_cast<int64_t>(i) % p.rows;
          ASSERT_EQ(part[i], row >= o.r0 && row < o.r1 ? all[i] : -7.0f) << "row " << row;
        }
      }
    }
  });
}

TEST(Matmul, EpilogueAddsBiasScalesAndAccumulates) {
  for_all([](const Table& table, const WeightType& w) {
    const int64_t block = reference::block_values(w.type);
    const Problem p(table, w, 21, 2 * block, 9);
    const std::vector<float> plain = p.run({});
    std::vector<float> bias(static_cast<size_t>(p.rows));
    for (size_t r = 0; r < bias.size(); ++r) bias[r] = static_cast<float>(r) - 9.5f;
    const Buffer exact_bias(bias.data(), bias.size() * sizeof(float), 0);
    Options o;
    o.bias = reinterpret_cast<const float*>(exact_bias.data());
    o.scale = 0.5f;  // powers of two: the expected value rounds like the kernel
    o.factor = 4.0f;
    o.add = true;
    o.fill = 3.0f;
    const std::vector<float> y = p.run(o);
    for (size_t i = 0; i < y.size(); ++i) {
      const float expected = (4 * plain[i] + bias[i % bias.size()]) * 0.5f + 3.0f;
      ASSERT_EQ(y[i], expected) << i;
    }
  });
}

// best() and by_name() return tables with the right name.
TEST(Tables, ForcedByName) {
  ASSERT_FALSE(tables().empty());
  EXPECT_STREQ(best().name, available()[0]);
  for (const char* const* name = available(); *name != nullptr; ++name) {
    const Table* table = by_name(*name);
    ASSERT_NE(table, nullptr);
    EXPECT_STREQ(table->name, *name);
    EXPECT_EQ(table->row_group % 4, 0);
  }
  EXPECT_EQ(by_name("no such table"), nullptr);
}

#if defined(__wasm__)
// This machine's relaxed dot product may be made of 16-bit pairs. The table that needs a single
// instruction is then unavailable.
TEST(Tables, FourWayDotProductIsUsedOrUnavailable) {
  if (by_name("wasm128") != nullptr) GTEST_SKIP() << "the plain binary";
  EXPECT_STREQ(available()[by_name("wasmrelaxed") != nullptr ? 1 : 0], "wasmrelaxed16");
  if (by_name("wasmrelaxed") == nullptr) {
    GTEST_SKIP() << "wasmrelaxed: the relaxed dot product saturates here";
  }
}
#endif

// Each table has its own packed layout, so a multiplication shows which one ran: sizes follow the
// table's row group.
TEST(Tables, ForcedTableRuns) {
  for (const Table* table : tables()) {
    for (const Table* other : tables()) {
      EXPECT_EQ(table == other, table->matmul == other->matmul);
      EXPECT_EQ(table == other, table->quantize_q8 == other->quantize_q8);
    }
  }
}

TEST(Quantize, RoundsToNearestWithOneScalePer32) {
  for (const Table* table : tables()) {
    for (int64_t cols : {1, 31, 32, 33, 256, 1000}) {
      std::mt19937 rng(static_cast<uint32_t>(cols));
      std::normal_distribution<float> normal(0.0f, 3.0f);
      std::vector<float> x(static_cast<size_t>(cols));
      for (float& v : x) v = normal(rng);
      const int64_t padded = (cols + 31) / 32 * 32;
      std::vector<int8_t> q(static_cast<size_t>(padded));
      std::vector<float> d(static_cast<size_t>(padded / 32));
      reference::quantize_q8(x.data(), cols, q.data(), d.data());
      // Read back through a multiplication with one-hot weights of 1, the only public way.
      const Buffer exact(x.data(), x.size() * sizeof(float), 0);
      const Buffer q8(table->q8_bytes(cols));
      table->quantize_q8(reinterpret_cast<const float*>(exact.data()), cols, cols, 1, q8.data());
      const size_t row_bytes = reference::row_bytes(Type::kQ8_0, padded);
      std::vector<uint8_t> w(static_cast<size_t>(padded) * row_bytes, 0);
      for (int64_t r = 0; r < padded; ++r) {
        uint8_t* block = &w[static_cast<size_t>(r) * row_bytes + static_cast<size_t>(r / 32) * 34];
        const f16 one = 0x3c00;
        std::memcpy(block, &one, 2);
        block[2 + r % 32] = 1;
      }
      std::vector<float> y(static_cast<size_t>(padded));
      const Buffer scratch(table->matmul_scratch(Type::kQ8_0, padded));
      MatmulArgs a = {};
      a.w = {Type::kQ8_0, false, padded, padded, w.data()};
      a.r1 = padded;
      a.x = {nullptr, 0, q8.data(), 1};
      a.scale = 1.0f;
      a.y = y.data();
      a.ldy = padded;
      a.scratch = scratch.data();
      table->matmul(a);
      for (int64_t i = 0; i < padded; ++i) {
        const size_t at = static_cast<size_t>(i);
        // The same integers. The scale is a quotient of sums, whose order depends on the target.
        const float expected = i < cols ? d[at / 32] * static_cast<float>(q[at]) : 0.0f;
        ASSERT_NEAR(y[at], expected, 1e-6f * 127 * d[at / 32])
            << table->name << " " << cols << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace sluice::kernels

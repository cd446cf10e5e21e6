// Attention of every table that this machine runs: compared with naive attention in double, and
// bit-identical for any grouping of the rows and any split of the positions. Buffers have the exact
// size; positions that no row sees are NaN.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <random>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/tables_util.h"

namespace sluice::kernels {
namespace {

// For outputs around 1: f32 scores of up to 256 products, then weights and sums.
constexpr double kAttentionBudget = 1e-5;
// Scores up to 1,600 are rounded by up to 1,600 * 2^-24, which affects the weights.
constexpr double kExtremeBudget = 3e-4;
constexpr f16 kHalfNan = 0x7e00;

struct Shape {
  int32_t n_rows, dk, dv, n_positions;
  float softcap = 0;
};

constexpr std::align_val_t kLine{64};
struct Release {
  void operator()(void* p) const { ::operator delete(p, kLine); }
};

// One attention call with all its buffers, in exact sizes.
struct Attending {
  Attending(const Shape& s, uint32_t seed) : shape(s), stride(s.dk), rng(seed) {
    std::normal_distribution<float> normal;
    q.reset(new float[size(s.n_rows, s.dk)]);
    k.reset(new f16[size(s.n_positions, s.dk)]);
    v.reset(new f16[size(s.n_positions, s.dv)]);
    for (size_t i = 0; i < size(s.n_rows, s.dk); ++i) q[i] = 2 * normal(rng);
    for (size_t i = 0; i < size(s.n_positions, s.dk); ++i) {
      k[i] = reference::f32_to_f16(normal(rng));
    }
    for (size_t i = 0; i < size(s.n_positions, s.dv); ++i) {
      v[i] = reference::f32_to_f16(normal(rng));
    }
    begin.assign(static_cast<size_t>(s.n_rows), 0);
    end.assign(static_cast<size_t>(s.n_rows), s.n_positions);
  }
  static size_t size(int64_t a, int64_t b) { return static_cast<size_t>(a * b); }

  // ALiBi with steep and flat slopes. A row's own position is at the end of what it sees, or, for
  // every third row, before it.
  void add_slopes() {
    for (int32_t i = 0; i < shape.n_rows; ++i) {
      slope.push_back(0.5f / static_cast<float>(1 + i % 7));
      const int32_t last = end[static_cast<size_t>(i)] - 1;
      position.push_back(i % 3 == 2 ? last / 2 : last);
    }
  }
  // Biases by distance, of the second of three heads, in nine buckets.
  void add_relative() {
    for (int32_t i = 0; i < shape.n_rows; ++i) {
      const int32_t last = end[static_cast<size_t>(i)] - 1;
      position.push_back(i % 3 == 2 ? last / 2 : last);
    }
    for (int32_t i = 0; i < 3 * 30; ++i) relative.push_back(static_cast<float>(i * 7 % 23) / 5 - 2);
    for (int32_t i = 0; i < 2 * kRelativeReach + 1; ++i) {
      buckets.push_back(static_cast<uint8_t>(i / 9));
    }
  }
  // Sinks from far below to far above the scores.
  void add_sinks() {
    for (int32_t i = 0; i < shape.n_rows; ++i)
      sink.push_back(4.0f * static_cast<float>(i % 8) - 12);
  }

  // The rows of n_tokens tokens, the last one at the last position; window 0: all previous
  // positions.
  void make_causal(int32_t group, int32_t window) {
    const int32_t n_tokens = shape.n_rows / group;
    for (int32_t i = 0; i < shape.n_rows; ++i) {
      const size_t row = static_cast<size_t>(i);
      end[row] = shape.n_positions - n_tokens + i / group + 1;
      begin[row] = window > 0 && end[row] > window ? end[row] - window : 0;
    }
  }

  AttentionArgs args() {
    AttentionArgs a{};
    a.q = q.get();
    a.q_stride = stride;
    a.k = k.get();
    a.v = v.get();
    a.n_rows = shape.n_rows;
    a.dk = shape.dk;
    a.dv = shape.dv;
    a.begin = begin.data();
    a.end = end.data();
    a.scale = 1.0f / std::sqrt(static_cast<float>(shape.dk));
    a.softcap = shape.softcap;
    if (!slope.empty()) {
      a.slope = slope.data();
      a.position = position.data();
    }
    if (!sink.empty()) a.sink = sink.data();
    if (!relative.empty()) {
      a.relative = &relative[1];
      a.relative_stride = 3;
      a.buckets = buckets.data();
      a.position = position.data();
    }
    return a;
  }

  // Runs `a` with exact scratch; returns [n_rows][dv].
  std::vector<float> run(const Table& table, AttentionArgs a) {
    std::vector<float> out(size(a.n_rows, a.dv), std::numeric_limits<float>::quiet_NaN());
    const size_t bytes = table.attention_scratch(a.n_rows, a.dk, a.dv);
    EXPECT_EQ(bytes % 64, 0U);
    std::unique_ptr<void, Release> scratch(::operator new(bytes, kLine));
    std::memset(scratch.get(), 0xff, bytes);  // NaN
    a.out = out.data();
    a.out_stride = a.dv;
    a.scratch = scratch.get();
    table.attention(a);
    return out;
  }

  void expect_matches(const Table& table, double budget = kAttentionBudget) {
    std::vector<double> expected(size(shape.n_rows, shape.dv));
    reference::attention(args(), expected.data());
    const std::vector<float> got = run(table, args());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], expected[i], budget)
          << table.name << ": rows " << shape.n_rows << ", dk " << shape.dk << ", dv " << shape.dv
          << ", positions " << shape.n_positions << ", element " << i;
    }
  }

  Shape shape;
  int64_t stride;
  std::mt19937 rng;
  std::unique_ptr<float[]> q;
  std::unique_ptr<f16[]> k, v;
  std::vector<int32_t> begin, end, position;
  std::vector<float> slope, sink, relative;
  std::vector<uint8_t> buckets;
};

TEST(Attention, EveryHeadSize) {
  for (const Table* table : tables()) {
    for (const int32_t d : {1, 7, 8, 15, 16, 17, 24, 37, 40, 64, 80, 96, 112, 128, 192, 256}) {
      Attending({3, d, d, 75}, 1).expect_matches(*table);
      Attending({2, d, 40, 33}, 2).expect_matches(*table);
      Attending({2, 40, d, 33}, 3).expect_matches(*table);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Attention, EveryRowCount) {
  for (const Table* table : tables()) {
    for (int32_t rows = 1; rows <= 67; ++rows) {
      Attending({rows, 24, 24, 70}, 4).expect_matches(*table);
      if (HasFatalFailure()) return;
    }
    Attending({200, 24, 24, 70}, 5).expect_matches(*table);
  }
}

TEST(Attention, EveryPositionCount) {
  for (const Table* table : tables()) {
    for (int32_t n = 1; n <= 67; ++n) Attending({2, 16, 16, n}, 6).expect_matches(*table);
    for (const int32_t n : {511, 512, 513, 1024, 1030, 2048}) {
      Attending({5, 64, 64, n}, 7).expect_matches(*table);
    }
  }
}

TEST(Attention, CausalAndWindowed) {
  for (const Table* table : tables()) {
    for (const int32_t group : {1, 3, 8}) {
      for (const int32_t window : {0, 1, 5, 40}) {
        for (const int32_t tokens : {1, 5, 33}) {
          Attending p({tokens * group, 24, 32, 70}, 8);
          p.make_causal(group, window);
          p.expect_matches(*table);
          if (HasFatalFailure()) return;
        }
      }
    }
    Attending p({600, 16, 16, 1200}, 9);
    p.make_causal(1, 0);
    p.expect_matches(*table);
  }
}

TEST(Attention, RandomRanges) {
  std::mt19937 rng(10);
  const auto below = [&rng](int32_t n) {
    return std::uniform_int_distribution<int32_t>(0, n - 1)(rng);
  };
  for (const Table* table : tables()) {
    for (uint32_t round = 0; round < 60; ++round) {
      Attending p({1 + below(20), 16, 24, 600}, round);
      for (size_t i = 0; i < p.begin.size(); ++i) {
        p.begin[i] = below(599);
        p.end[i] = p.begin[i] + 1 + below(600 - p.begin[i]);
      }
      p.expect_matches(*table);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Attention, SoftCap) {
  for (const Table* table : tables()) {
    Attending({4, 64, 64, 200, 50}, 11).expect_matches(*table);
    Attending({4, 64, 64, 200, 2}, 12).expect_matches(*table);
  }
}

// Values that are the first channels of their keys, as latent attention caches them: bit-identical
// to separate values.
TEST(Attention, ValuesInKeys) {
  for (const Table* table : tables()) {
    for (const Shape& shape : {Shape{1, 40, 32, 75}, Shape{3, 72, 64, 600}, Shape{5, 41, 33, 33},
                               Shape{16, 576, 512, 70}, Shape{70, 24, 24, 40}}) {
      Attending p(shape, 24);
      for (int32_t i = 0; i < shape.n_positions; ++i) {
        std::copy_n(&p.k[Attending::size(i, shape.dk)], shape.dv,
                    &p.v[Attending::size(i, shape.dv)]);
      }
      p.expect_matches(*table);
      const std::vector<float> apart = p.run(*table, p.args());
      AttentionArgs a = p.args();
      a.v = a.k;
      a.v_stride = a.dk;
      const std::vector<float> within = p.run(*table, a);
      EXPECT_EQ(std::memcmp(within.data(), apart.data(), apart.size() * sizeof(float)), 0);
    }
  }
}
TEST(Attention, Sinks) {
  for (const Table* table : tables()) {
    for (const int32_t rows : {1, 2, 9, 70}) {
      for (const int32_t n : {1, 31, 200, 1100}) {
        Attending p({rows, 40, 24, n}, 20);
        p.add_sinks();
        p.expect_matches(*table);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// A sink of minus infinity is bit-identical to no sink.
TEST(Attention, NoSink) {
  for (const Table* table : tables()) {
    Attending p({9, 24, 24, 600}, 21);
    const std::vector<float> without = p.run(*table, p.args());
    p.sink.assign(9, kNoSink);
    const std::vector<float> with = p.run(*table, p.args());
    EXPECT_EQ(std::memcmp(with.data(), without.data(), with.size() * sizeof(float)), 0);
  }
}

TEST(Attention, Alibi) {
  for (const Table* table : tables()) {
    for (const int32_t group : {1, 3, 8}) {
      for (const int32_t window : {0, 40}) {
        for (const int32_t tokens : {1, 5, 33}) {
          Attending p({tokens * group, 24, 32, 700}, 22);
          p.make_causal(group, window);
          p.add_slopes();
          p.expect_matches(*table);
          p.add_sinks();
          p.expect_matches(*table);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Attention, BiasesByDistance) {
  for (const Table* table : tables()) {
    for (const int32_t tokens : {1, 5, 33}) {
      for (const bool whole : {false, true}) {
        Attending p({tokens, 24, 32, 700}, 24);
        if (!whole) p.make_causal(1, 0);
        p.add_relative();
        p.expect_matches(*table);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// A ring buffer stores a position elsewhere: only distances count.
TEST(Attention, AlibiDependsOnDistancesOnly) {
  for (const Table* table : tables()) {
    constexpr int32_t kShift = kAttentionSplit;
    Attending p({4, 24, 24, 100}, 23);
    p.add_slopes();
    const std::vector<float> here = p.run(*table, p.args());
    AttentionArgs a = p.args();
    for (int32_t i = 0; i < 4; ++i) {
      p.begin[static_cast<size_t>(i)] += kShift;
      p.end[static_cast<size_t>(i)] += kShift;
      p.position[static_cast<size_t>(i)] += kShift;
    }
    std::vector<f16> k(Attending::size(kShift + 100, 24), kHalfNan), v = k;
    std::copy_n(p.k.get(), 2400, &k[size_t{kShift} * 24]);
    std::copy_n(p.v.get(), 2400, &v[size_t{kShift} * 24]);
    a.k = k.data();
    a.v = v.data();
    const std::vector<float> there = p.run(*table, a);
    EXPECT_EQ(std::memcmp(here.data(), there.data(), here.size() * sizeof(float)), 0)
        << table->name;
  }
}

// Scores that grow or shrink steeply along the positions: the running maximum moves every block or
// never, and early weights vanish.
TEST(Attention, ExtremeScores) {
  for (const Table* table : tables()) {
    for (const float slope : {1.0f, -1.0f, 30.0f, -30.0f}) {
      Attending p({2, 8, 8, 300}, 13);
      for (int32_t i = 0; i < 300; ++i) {
        p.k[static_cast<size_t>(i) * 8] =
            reference::f32_to_f16(slope * static_cast<float>(i - 150) / 10);
      }
      p.q[0] = 10;
      p.q[8] = -3;
      p.expect_matches(*table, kExtremeBudget);
    }
  }
}

// A ring buffer or a growing cache: positions outside every row's range were never written.
TEST(Attention, UnseenPositionsAreNotRead) {
  for (const Table* table : tables()) {
    Attending p({9, 24, 24, 200}, 14);
    p.make_causal(3, 50);
    int32_t first = 200;
    for (const int32_t b : p.begin) first = std::min(first, b);
    for (size_t i = 0; i < size_t(first) * 24; ++i) p.k[i] = p.v[i] = kHalfNan;
    p.expect_matches(*table);
  }
}

// An infinite value affects only the rows that see it.
TEST(Attention, RowsAreIndependent) {
  for (const Table* table : tables()) {
    Attending p({8, 16, 16, 64}, 15);
    p.make_causal(1, 0);
    const std::vector<float> clean = p.run(*table, p.args());
    for (size_t i = 63 * 16; i < 64 * 16; ++i) p.v[i] = kHalfNan;
    const std::vector<float> dirty = p.run(*table, p.args());
    EXPECT_EQ(std::memcmp(clean.data(), dirty.data(), 7 * 16 * sizeof(float)), 0) << table->name;
    EXPECT_TRUE(std::isnan(dirty[7 * 16]));
  }
}

TEST(Attention, RowsAloneGiveTheSameBits) {
  for (const Table* table : tables()) {
    for (const int32_t dk : {24, 64, 128}) {
      Attending p({77, dk, dk, 700}, 16);
      p.make_causal(7, dk == 24 ? 100 : 0);
      if (dk != 64) p.add_slopes();
      if (dk != 128) p.add_sinks();
      const std::vector<float> together = p.run(*table, p.args());
      for (const int32_t some : {1, 2, 3, 7, 8, 50}) {
        for (int32_t row = 0; row < 77; row += some) {
          AttentionArgs a = p.args();
          a.n_rows = std::min(some, 77 - row);
          a.q += row * p.stride;
          a.begin += row;
          a.end += row;
          if (a.slope != nullptr) {
            a.slope += row;
            a.position += row;
          }
          if (a.sink != nullptr) a.sink += row;
          const std::vector<float> alone = p.run(*table, a);
          ASSERT_EQ(std::memcmp(alone.data(), &together[size_t(row) * size_t(dk)],
                                alone.size() * sizeof(float)),
                    0)
              << table->name << ", row " << row << ", " << some << " rows at a time";
        }
      }
    }
  }
}

// The positions between multiples of kAttentionSplit are parts; the merged result is bit-identical.
TEST(Attention, PartsMergeToTheSameBits) {
  for (const Table* table : tables()) {
    for (const int32_t dv : {20, 64}) {
      Attending p({6, 32, dv, 4 * kAttentionSplit + 100}, 17);
      for (size_t i = 0; i < 6; ++i) p.begin[i] = static_cast<int32_t>(i) * 200;
      if (dv == 20) p.add_slopes();
      p.add_sinks();
      const std::vector<float> whole = p.run(*table, p.args());
      const size_t row_size = static_cast<size_t>(dv);
      constexpr size_t kParts = 5;
      std::vector<float> partial(6 * kParts * row_size), max(6 * kParts), sum(6 * kParts);
      for (size_t part = 0; part < kParts; ++part) {
        std::vector<int32_t> begin, end;
        for (size_t i = 0; i < 6; ++i) {
          const int32_t start = static_cast<int32_t>(part) * kAttentionSplit;
          begin.push_back(std::max(p.begin[i], start));
          end.push_back(std::min(p.end[i], start + kAttentionSplit));  // may be empty
        }
        AttentionArgs a = p.args();
        a.begin = begin.data();
        a.end = end.data();
        float part_max[6], part_sum[6];
        a.partial_max = part_max;
        a.partial_sum = part_sum;
        const std::vector<float> out = p.run(*table, a);
        for (size_t i = 0; i < 6; ++i) {
          std::copy_n(&out[i * row_size], row_size, &partial[(i * kParts + part) * row_size]);
          max[i * kParts + part] = part_max[i];
          sum[i * kParts + part] = part_sum[i];
        }
      }
      for (size_t i = 0; i < 6; ++i) {
        std::vector<float> merged(row_size);
        table->attention_merge(&partial[i * kParts * row_size], dv, &max[i * kParts],
                               &sum[i * kParts], kParts, dv, p.sink[i], merged.data());
        EXPECT_EQ(std::memcmp(merged.data(), &whole[i * row_size], row_size * sizeof(float)), 0)
            << table->name << ", row " << i;
      }
    }
  }
}

// Parts cut anywhere else agree within the error budget.
TEST(Attention, PartsCutAnywhereMergeWithinBudget) {
  for (const Table* table : tables()) {
    Attending p({1, 32, 32, 300}, 18);
    std::vector<double> expected(32);
    reference::attention(p.args(), expected.data());
    float partial[3 * 32], max[3], sum[3], merged[32];
    const int32_t cuts[4] = {0, 7, 100, 300};
    for (size_t part = 0; part < 3; ++part) {
      AttentionArgs a = p.args();
      a.begin = &cuts[part];
      a.end = &cuts[part + 1];
      a.partial_max = &max[part];
      a.partial_sum = &sum[part];
      const std::vector<float> out = p.run(*table, a);
      std::copy(out.begin(), out.end(), &partial[part * 32]);
    }
    table->attention_merge(partial, 32, max, sum, 3, 32, kNoSink, merged);
    for (size_t i = 0; i < 32; ++i) EXPECT_NEAR(merged[i], expected[i], kAttentionBudget);
  }
}

// Strided query and output rows at every misalignment; memory between rows is unchanged.
TEST(Attention, StridesAndMisalignments) {
  for (const Table* table : tables()) {
    for (size_t offset = 0; offset < 16; ++offset) {
      Attending p({3, 20, 20, 40}, 19);
      const std::vector<float> expected = p.run(*table, p.args());
      std::vector<float> q(offset + 3 * 50, 0), out(offset + 3 * 30, 7);
      for (size_t i = 0; i < 3; ++i) std::copy_n(&p.q[i * 20], 20, &q[offset + i * 50]);
      std::unique_ptr<f16[]> k(new f16[offset + 40 * 20]);
      std::unique_ptr<f16[]> v(new f16[offset + 40 * 20]);
      std::copy_n(p.k.get(), 800, k.get() + offset);
      std::copy_n(p.v.get(), 800, v.get() + offset);
      AttentionArgs a = p.args();
      a.q = &q[offset];
      a.q_stride = 50;
      a.k = k.get() + offset;
      a.v = v.get() + offset;
      a.out = &out[offset];
      a.out_stride = 30;
      std::unique_ptr<void, Release> scratch(
          ::operator new(table->attention_scratch(3, 20, 20), kLine));
      a.scratch = scratch.get();
      table->attention(a);
      for (size_t i = 0; i < 3; ++i) {
        for (size_t c = 0; c < 30; ++c) {
          EXPECT_EQ(out[offset + i * 30 + c], c < 20 ? expected[i * 20 + c] : 7);
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::kernels

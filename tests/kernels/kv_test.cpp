// Quantized keys and values of every table that this machine runs, against their definition in
// plain code: the rotation, the error of what is written, and attention over it, which must be that
// over the values that the bits stand for, whatever rows are done together. Buffers have the exact
// size.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/reference/reference.h"

namespace sluice::kernels {
namespace {

constexpr KvType kTypes[] = {KvType::kF16, KvType::kQ8_0, KvType::kQ4_0, KvType::kQ2};

std::vector<const Table*> tables() {
  std::vector<const Table*> result;
  for (const char* const* name = available(); *name != nullptr; ++name) {
    result.push_back(by_name(*name));
  }
  return result;
}

std::vector<float> normal_values(size_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(n);
  for (float& x : out) x = normal(rng);
  return out;
}

std::vector<f16> halves(const std::vector<float>& x) {
  std::vector<f16> out;
  for (const float value : x) out.push_back(reference::f32_to_f16(value));
  return out;
}

TEST(KvQuantize, RotationIsHadamardsAndItsOwnInverse) {
  for (const Table* table : tables()) {
    for (const int32_t n : {1, 2, 3, 7, 8, 15, 16, 24, 37, 64, 80, 96, 128, 192, 256, 576}) {
      const std::vector<float> x = normal_values(static_cast<size_t>(n), 1);
      std::vector<float> y = x;
      table->rotate(y.data(), n);
      std::vector<double> expected(x.size());
      reference::rotate(x.data(), n, expected.data());
      for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(y[i], expected[i], 1e-5) << n;
      table->rotate(y.data(), n);
      for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(y[i], x[i], 1e-5) << n;
    }
  }
}

// What the best scale could reach, over blocks of 32.
double least_error(KvType type, const std::vector<float>& x) {
  double sum = 0;
  for (size_t at = 0; at < x.size(); at += 32) {
    float block[32] = {};
    std::copy_n(x.begin() + static_cast<ptrdiff_t>(at), std::min<size_t>(32, x.size() - at), block);
    sum += reference::least_kv_error(type, block);
  }
  return sum;
}

TEST(KvQuantize, RowsAreNearlyAsCloseAsTheyCanBe) {
  for (const Table* table : tables()) {
    for (const int32_t n : {1, 31, 32, 33, 64, 80, 128}) {
      const size_t size = static_cast<size_t>(n);
      for (const KvType type : {KvType::kQ8_0, KvType::kQ4_0, KvType::kQ2}) {
        for (const bool keys : {false, true}) {
          if (keys && type == KvType::kQ2) continue;
          std::vector<f16> group = halves(normal_values(kKvGroup * size, 2));
          std::fill_n(group.begin() + n, n, f16{0});  // a row of zeros
          std::vector<uint8_t> out(kKvGroup * static_cast<size_t>(kv_row_bytes(type, n)), 0xff);
          table->quantize_kv_group(type, keys, group.data(), n, out.data());
          double error = 0, least = 0;
          for (size_t p = 0; p < kKvGroup; ++p) {
            std::vector<float> row(size);
            double own = 0;
            for (size_t c = 0; c < size; ++c) {
              row[c] = reference::f16_to_f32(group[p * size + c]);
              const double e =
                  row[c] - reference::kv_value(type, keys, out.data(), n, static_cast<int64_t>(p),
                                               static_cast<int32_t>(c));
              own += e * e;
            }
            if (p == 1) {
              EXPECT_EQ(own, 0);
            }
            error += own;
            least += least_error(type, row);
          }
          // q8_0 takes the range for its scale, the others the best of eight; a scale has eight
          // bits.
          EXPECT_LE(error, least * (type == KvType::kQ8_0 ? 1.6 : 1.2) + 1e-4 * kKvGroup)
              << table->name << " " << n << " " << static_cast<int>(type);
        }
      }
    }
  }
}

// A channel that stands out, and one that never changes, cost the others nothing.
TEST(KvQuantize, ChannelsAreByThemselves) {
  for (const Table* table : tables()) {
    for (const int32_t n : {4, 8, 24, 80, 128}) {
      const size_t size = static_cast<size_t>(n);
      std::vector<float> x = normal_values(kKvGroup * size, 3);
      for (size_t i = 0; i < kKvGroup; ++i) {
        x[i * size + 1] = 100 + 10 * x[i * size + 1];
        x[i * size + 2] = -3;
      }
      const std::vector<f16> group = halves(x);
      std::vector<uint8_t> out(static_cast<size_t>(kKvGroup * kv_row_bytes(KvType::kQ2, n)), 0xff);
      table->quantize_kv_group(KvType::kQ2, true, group.data(), n, out.data());
      for (size_t c = 0; c < size; ++c) {
        double error = 0;
        for (int32_t p = 0; p < kKvGroup; ++p) {
          const double e =
              reference::f16_to_f32(group[static_cast<size_t>(p) * size + c]) -
              reference::kv_value(KvType::kQ2, true, out.data(), n, p, static_cast<int32_t>(c));
          error += e * e;
        }
        // Four even levels over a normal distribution: 0.12 of its variance, of few values up to
        // 0.26.
        const double variance = c == 1 ? 100 : c == 2 ? 0 : 1;
        EXPECT_LE(error / kKvGroup, 0.3 * variance + (c == 2 ? 1e-3 : 0))
            << table->name << " " << c;
      }
    }
  }
}

// Keys with three channels that are ten times larger: the others of their blocks lose their bits to
// them, and less of these once all are rotated. What counts is the error of scores.
TEST(KvQuantize, RotationSavesKeysWithOutliers) {
  constexpr int32_t kSize = 128;
  for (const Table* table : tables()) {
    std::vector<float> keys = normal_values(kKvGroup * kSize, 7), q = normal_values(kSize, 8);
    for (const size_t channel : {5, 40, 101}) {
      for (size_t p = 0; p < kKvGroup; ++p) keys[p * kSize + channel] *= 10;
      q[channel] /= 10;
    }
    const auto error = [&](const std::vector<float>& x, const std::vector<float>& query) {
      std::vector<uint8_t> out(kKvGroup * static_cast<size_t>(kv_row_bytes(KvType::kQ4_0, kSize)));
      table->quantize_kv_group(KvType::kQ4_0, true, halves(x).data(), kSize, out.data());
      double lost = 0, all = 0;
      for (int64_t p = 0; p < kKvGroup; ++p) {
        double exact = 0, got = 0;
        for (int32_t i = 0; i < kSize; ++i) {
          const double by = query[static_cast<size_t>(i)];
          exact += by * static_cast<double>(x[static_cast<size_t>(p * kSize + i)]);
          got += by * reference::kv_value(KvType::kQ4_0, true, out.data(), kSize, p, i);
        }
        lost += (exact - got) * (exact - got);
        all += exact * exact;
      }
      return lost / all;
    };
    const double plain = error(keys, q);
    for (size_t p = 0; p < kKvGroup; ++p) table->rotate(&keys[p * kSize], kSize);
    table->rotate(q.data(), kSize);
    const double rotated = error(keys, q);
    std::printf("%-12s NMSE of scores %.3g, rotated %.3g\n", table->name, plain, rotated);
    EXPECT_LT(rotated, plain / 1.5) << table->name;
    EXPECT_LT(rotated, 0.05) << table->name;
  }
}

// One cache of a head, filled as the engine fills it.
struct Cache {
  Cache(const Table& table, KvType k, KvType v, int32_t dk_in, int32_t dv_in, int32_t n_in)
      : dk(dk_in), dv(dv_in), n(n_in), k_type(k), v_type(v) {
    key_copies = halves(normal_values(static_cast<size_t>(n) * static_cast<size_t>(dk), 4));
    value_copies = halves(normal_values(static_cast<size_t>(n) * static_cast<size_t>(dv), 5));
    keys = fill(table, k, true, key_copies, dk);
    values = fill(table, v, false, value_copies, dv);
    // Only the last groups stay in the rings; what came before is not there any more.
    ring(key_copies, dk);
    ring(value_copies, dv);
  }
  std::vector<uint8_t> fill(const Table& table, KvType type, bool is_key,
                            const std::vector<f16>& rows, int32_t size) const {
    const int32_t units = type != KvType::kF16 ? (n + kKvGroup - 1) / kKvGroup * kKvGroup : n;
    const int64_t row_bytes = kv_row_bytes(type, size);
    std::vector<uint8_t> out(static_cast<size_t>(units * row_bytes), 0xff);
    if (type == KvType::kF16) std::memcpy(out.data(), rows.data(), out.size());
    for (int32_t p = 0; type != KvType::kF16 && p + kKvGroup <= n; p += kKvGroup) {
      table.quantize_kv_group(type, is_key,
                              &rows[static_cast<size_t>(p) * static_cast<size_t>(size)], size,
                              out.data() + p * row_bytes);
    }
    return out;
  }
  void ring(std::vector<f16>& rows, int32_t size) const {
    const std::vector<f16> all = rows;
    const size_t row = static_cast<size_t>(size);
    rows.assign(kRing * row, 0x7e00);
    for (int32_t p = std::max(0, n - kRing); p < n; ++p) {
      const size_t to = static_cast<size_t>((p + kShift) % kRing) * row;
      std::copy_n(all.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(p) * row), size,
                  rows.begin() + static_cast<ptrdiff_t>(to));
    }
  }
  AttentionArgs args() const {
    AttentionArgs a{};
    a.k = keys.data();
    a.v = values.data();
    a.dk = dk;
    a.dv = dv;
    a.scale = 1 / std::sqrt(static_cast<float>(dk));
    a.k_type = k_type;
    a.v_type = v_type;
    a.recent_k = key_copies.data();
    a.recent_v = value_copies.data();
    a.recent_size = kRing;
    a.recent_shift = kShift;
    return a;
  }

  static constexpr int32_t kRing = 3 * kKvGroup, kShift = 2 * kKvGroup;
  int32_t dk, dv, n;
  KvType k_type, v_type;
  std::vector<uint8_t> keys, values;
  std::vector<f16> key_copies, value_copies;
};

std::vector<float> attend(const Table& table, AttentionArgs a) {
  const size_t dv = static_cast<size_t>(a.dv), rows = static_cast<size_t>(a.n_rows);
  std::vector<float> out(rows * dv, std::numeric_limits<float>::quiet_NaN());
  std::vector<uint8_t> scratch(table.attention_scratch(a.n_rows, a.dk, a.dv) + 64, 0xff);
  const size_t skew = 64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64;
  a.out = out.data();
  a.out_stride = a.dv;
  a.scratch = scratch.data() + skew;
  table.attention(a);
  return out;
}

double squares(const std::vector<float>& got, const std::vector<double>& expected, bool error) {
  double sum = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double x = error ? static_cast<double>(got[i]) - expected[i] : expected[i];
    sum += x * x;
  }
  return sum;
}

struct Case {
  Case(const Table& table, KvType k, KvType v, int32_t dk, int32_t dv, int32_t n)
      : cache(table, k, v, dk, dv, n), a(cache.args()) {
    a.q_stride = dk;
  }
  // Rows of the last positions, every third without the first half.
  void last_rows(int32_t n_rows) {
    q = normal_values(static_cast<size_t>(n_rows) * static_cast<size_t>(a.dk), 6);
    for (int32_t i = 0; i < n_rows; ++i) {
      position.push_back(cache.n - n_rows + i);
      end.push_back(cache.n - n_rows + i + 1);
      begin.push_back(i % 3 == 1 ? end.back() / 2 : 0);
    }
    set(n_rows);
  }
  // A row for every position, which sees it alone from behind the last; queries are integers.
  void one_each() {
    q = normal_values(static_cast<size_t>(cache.n) * static_cast<size_t>(a.dk), 6);
    for (size_t i = 0; i < q.size(); ++i) {
      const bool first = i % static_cast<size_t>(a.dk) % 32 == 0;  // of those with a scale
      q[i] = first ? 127.0f : std::clamp(std::round(40 * q[i]), -127.0f, 127.0f);
    }
    for (int32_t i = 0; i < cache.n; ++i) {
      begin.push_back(i);
      end.push_back(i + 1);
      position.push_back(cache.n - 1);
    }
    set(cache.n);
  }
  void set(int32_t n_rows) {
    a.q = q.data();
    a.n_rows = n_rows;
    a.begin = begin.data();
    a.end = end.data();
    a.position = position.data();
  }
  Cache cache;
  AttentionArgs a;
  std::vector<float> q;
  std::vector<int32_t> begin, end, position;
};

// Rounded weights and queries cost what this says, of the squares of what comes out.
double rounding(KvType k, KvType v) {
  return (k == KvType::kF16 ? 1e-10 : 1e-4) + (v == KvType::kF16    ? 1e-10
                                               : v == KvType::kQ8_0 ? 1e-8
                                                                    : 1e-4);
}

// Rows of the last positions: in one group and in the one before, together and alone.
TEST(KvAttention, IsThatOverTheValuesThatTheBitsStandFor) {
  const int32_t sizes[][2] = {{8, 8}, {24, 40}, {80, 64}, {96, 96}, {128, 128}};
  for (const Table* table : tables()) {
    for (const KvType k : kTypes) {
      for (const KvType v : kTypes) {
        const int pair = static_cast<int>(k) * 4 + static_cast<int>(v);
        const auto& size = sizes[pair % 5];
        for (const int32_t n : {70, 64, 230}) {
          Case c(*table, k, v, size[0], size[1], n);
          c.last_rows(64);
          const std::vector<float> got = attend(*table, c.a);
          std::vector<double> expected(got.size());
          reference::attention(c.a, expected.data());
          EXPECT_LE(squares(got, expected, true), rounding(k, v) * squares(got, expected, false))
              << table->name << " types " << pair << " n " << n;
          for (int32_t i = 0; i < c.a.n_rows; i += 7) {
            AttentionArgs one = c.a;
            one.q = c.a.q + i * c.a.dk;
            one.n_rows = 1;
            one.begin = c.a.begin + i;
            one.end = c.a.end + i;
            one.position = c.a.position + i;
            const std::vector<float> alone = attend(*table, one);
            ASSERT_EQ(std::memcmp(alone.data(), &got[static_cast<size_t>(i * c.a.dv)],
                                  alone.size() * sizeof(float)),
                      0)
                << table->name << " types " << pair << " row " << i;
          }
        }
      }
    }
  }
}

// Latent attention: the first values of a key are its value.
TEST(KvAttention, ValuesMayBePartOfTheirKeys) {
  for (const Table* table : tables()) {
    for (const KvType type : {KvType::kF16, KvType::kQ8_0, KvType::kQ4_0}) {
      for (const int32_t n_rows : {1, 64}) {
        Case c(*table, type, type, 96, 64, 200);
        c.last_rows(n_rows);
        c.a.v = c.a.k;
        c.a.v_stride = c.a.dk;
        c.a.recent_v = nullptr;
        const std::vector<float> got = attend(*table, c.a);
        std::vector<double> expected(got.size());
        reference::attention(c.a, expected.data());
        EXPECT_LE(squares(got, expected, true),
                  rounding(type, KvType::kF16) * squares(got, expected, false))
            << table->name << " " << static_cast<int>(type) << " " << n_rows;
      }
    }
  }
}

// Where nothing needs rounding, every score and every value is right by itself: a row that sees one
// position has its value, and its greatest score is that position's.
TEST(KvAttention, EveryPositionIsReadFromItsPlace) {
  for (const Table* table : tables()) {
    for (const KvType type : kTypes) {
      for (const int32_t d : {8, 80, 128}) {
        Case c(*table, type, type, d, d, 200);
        c.one_each();
        std::vector<float> max(200), sum(200);
        c.a.partial_max = max.data();
        c.a.partial_sum = sum.data();
        const std::vector<float> got = attend(*table, c.a);
        std::vector<double> expected(got.size());
        reference::attention(c.a, expected.data());
        for (size_t i = 0; i < got.size(); ++i) {
          ASSERT_NEAR(got[i], expected[i], 2e-5) << table->name << " " << static_cast<int>(type);
        }
        if (type == KvType::kQ2) continue;  // its queries are multiplied by steps, then rounded
        for (int32_t p = 0; p < 200; ++p) {
          double score = 0;
          for (int32_t i = 0; i < d; ++i) {
            const bool recent = type == KvType::kF16 || p >= 192;
            const size_t at = static_cast<size_t>((p + Cache::kShift) % Cache::kRing * d + i);
            const double key =
                type == KvType::kF16 ? reference::f16_to_f32(reinterpret_cast<const f16*>(
                                           c.cache.keys.data())[p * d + i])
                : recent             ? reference::f16_to_f32(c.cache.key_copies[at])
                         : reference::kv_value(type, true, c.cache.keys.data(), d, p, i);
            score += key * c.q[static_cast<size_t>(p * d + i)];
          }
          ASSERT_NEAR(max[static_cast<size_t>(p)], score * c.a.scale, 2e-3)
              << table->name << " " << static_cast<int>(type) << " " << p;
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::kernels

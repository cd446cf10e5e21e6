// KV cache quantization of every table that this machine runs, compared with its definition in
// reference code: the rotation, the quantization error, and attention. Attention must equal that
// over the dequantized values, for any grouping of rows. Buffers have the exact size.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/reference/reference.h"
#include "tests/extent.h"
#include "tests/kernels/tables_util.h"

namespace sluice::kernels {
namespace {

constexpr KvType kTypes[] = {KvType::kF16, KvType::kQ8_0, KvType::kQ4_0, KvType::kQ2};

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

TEST(KvQuantize, RotationIsTheHadamardTransformAndItsOwnInverse) {
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

// Squared error of row p in a group of rows of n values, also for keys of q4_0.
double row_error(KvType type, const std::vector<float>& x, const uint8_t* group, int32_t p,
                 bool keys) {
  const int32_t n = static_cast<int32_t>(x.size());
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const int32_t at = static_cast<int32_t>(i);
    const double kept = keys ? reference::kv_lane_value(group, n, p, at)
                             : reference::kv_value(type, group + p * kv_row_bytes(type, n), at);
    const double e = x[i] - kept;
    sum += e * e;
  }
  return sum;
}

// The error of the best possible scale, over blocks of 32.
double min_error(KvType type, const std::vector<float>& x) {
  double sum = 0;
  for (size_t at = 0; at < x.size(); at += 32) {
    float block[32] = {};
    std::copy_n(x.begin() + static_cast<ptrdiff_t>(at), std::min<size_t>(32, x.size() - at), block);
    sum += reference::min_kv_error(type, block);
  }
  return sum;
}

TEST(KvQuantize, RowsAreNearOptimal) {
  const std::pair<KvType, bool> forms[] = {// and whether they are keys
                                           {KvType::kQ8_0, false},
                                           {KvType::kQ4_0, false},
                                           {KvType::kQ4_0, true},
                                           {KvType::kQ2, false}};
  for (const Table* table : tables()) {
    for (const int32_t n : {1, 31, 32, 33, 64, 80, 128}) {
      const size_t size = static_cast<size_t>(n);
      for (const auto& pair : forms) {
        const KvType type = pair.first;
        const size_t row_bytes = static_cast<size_t>(kv_row_bytes(type, n));
        std::vector<f16> group = halves(normal_values(kKvGroup * size, 2));
        std::fill_n(group.begin() + n, n, f16{0});  // a row of zeros
        std::vector<uint8_t> out(kKvGroup * row_bytes, 0xff);
        const bool keys = pair.second;
        double error = 0, least = 0;
        if (type != KvType::kQ8_0) {
          table->quantize_kv_group(type, keys, group.data(), n, out.data());
        }
        for (size_t i = 0; i < kKvGroup; ++i) {
          std::vector<float> row(size);
          for (size_t c = 0; c < size; ++c) row[c] = reference::f16_to_f32(group[i * size + c]);
          if (type == KvType::kQ8_0) table->quantize_kv(row.data(), n, &out[i * row_bytes]);
          const double own = row_error(type, row, out.data(), static_cast<int32_t>(i), keys);
          if (i == 1) {
            EXPECT_EQ(own, 0);
          }
          error += own;
          least += min_error(type, row);
        }
        // q8_0's scale comes from the range, the others' is the best of eight. A scale has eight
        // bits.
        EXPECT_LE(error, least * (type == KvType::kQ8_0 ? 1.6 : 1.2) + 1e-4 * kKvGroup)
            << table->name << " " << n << " " << static_cast<int>(type);
      }
    }
  }
}

// An outlier channel and a constant channel do not affect the others.
TEST(KvQuantize, ChannelsAreQuantizedIndependently) {
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
          const double e = reference::f16_to_f32(group[static_cast<size_t>(p) * size + c]) -
                           reference::kv_channel_value(out.data(), n, p, static_cast<int32_t>(c));
          error += e * e;
        }
        // Four even levels over a normal distribution: 0.12 of its variance, up to 0.26 for few
        // values.
        const double variance = c == 1 ? 100 : c == 2 ? 0 : 1;
        EXPECT_LE(error / kKvGroup, 0.3 * variance + (c == 2 ? 1e-3 : 0))
            << table->name << " " << c;
      }
    }
  }
}

// Keys with three channels ten times larger, and queries as much smaller there. With four bits such
// a channel takes its neighbours' levels, unless both are rotated first.
TEST(KvQuantize, RotationSpreadsOutlierChannels) {
  constexpr int32_t kSize = 128;
  for (const Table* table : tables()) {
    std::vector<float> keys = normal_values(kKvGroup * kSize, 7), q = normal_values(kSize, 8);
    for (const size_t channel : {5u, 40u, 99u}) {
      for (size_t i = 0; i < kKvGroup; ++i) keys[i * kSize + channel] *= 10;
      q[channel] /= 10;
    }
    double error[2] = {0, 0};
    for (const bool rotated : {false, true}) {
      if (rotated) {
        for (size_t i = 0; i < kKvGroup; ++i) table->rotate(&keys[i * kSize], kSize);
        table->rotate(q.data(), kSize);
      }
      const size_t row_bytes = static_cast<size_t>(kv_row_bytes(KvType::kQ4_0, kSize));
      std::vector<uint8_t> out(kKvGroup * row_bytes);
      table->quantize_kv_group(KvType::kQ4_0, true, halves(keys).data(), kSize, out.data());
      for (size_t i = 0; i < kKvGroup; ++i) {
        double off = 0;  // error of the score
        for (int32_t c = 0; c < kSize; ++c) {
          const size_t at = static_cast<size_t>(c);
          const double kept =
              reference::kv_lane_value(out.data(), kSize, static_cast<int32_t>(i), c);
          off += double{q[at]} * (kept - keys[i * kSize + at]);
        }
        error[rotated] += off * off;
      }
    }
    EXPECT_GT(error[0], 2 * error[1]) << table->name;
  }
}

// The cache of one head, filled as the engine fills it.
struct Cache {
  Cache(const Table& table, KvType k, KvType v, int32_t dk_in, int32_t dv_in, int32_t n_in)
      : dk(dk_in), dv(dv_in), n(n_in), k_type(k), v_type(v) {
    key_copies = halves(normal_values(static_cast<size_t>(n) * static_cast<size_t>(dk), 4));
    value_copies = halves(normal_values(static_cast<size_t>(n) * static_cast<size_t>(dv), 5));
    keys = fill(table, k, true, key_copies, dk);
    values = fill(table, v, false, value_copies, dv);
    // Only the last groups stay in the rings; earlier ones are overwritten.
    ring(key_copies, dk);
    ring(value_copies, dv);
  }
  std::vector<uint8_t> fill(const Table& table, KvType type, bool is_key,
                            const std::vector<f16>& rows, int32_t size) const {
    const int32_t units = kv_grouped(type) ? (n + kKvGroup - 1) / kKvGroup * kKvGroup : n;
    const int64_t row_bytes = kv_row_bytes(type, size);
    std::vector<uint8_t> out(static_cast<size_t>(units * row_bytes), 0xff);
    for (int32_t p = 0; p < n; ++p) {
      const f16* row = &rows[static_cast<size_t>(p) * static_cast<size_t>(size)];
      uint8_t* at = out.data() + p * row_bytes;
      if (type == KvType::kF16) {
        std::memcpy(at, row, static_cast<size_t>(row_bytes));
      } else if (type == KvType::kQ8_0) {
        std::vector<float> wide(static_cast<size_t>(size));
        for (size_t i = 0; i < wide.size(); ++i) wide[i] = reference::f16_to_f32(row[i]);
        table.quantize_kv(wide.data(), size, at);
      } else if (p % kKvGroup == 0 && p + kKvGroup <= n) {
        table.quantize_kv_group(type, is_key, row, size, at);
      }
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

// Rows of the last 64 positions, in one group and in the one before: all together as in the
// definition, and one to six of them alone bit-identically, in tiles of every height.
void expect_as_defined(const Table& table, AttentionArgs a, int32_t n, const std::string& what) {
  const int32_t n_rows = 64;
  const std::vector<float> q =
      normal_values(static_cast<size_t>(n_rows) * static_cast<size_t>(a.dk), 6);
  std::vector<int32_t> begin, end, position;
  for (int32_t i = 0; i < n_rows; ++i) {
    position.push_back(n - n_rows + i);
    end.push_back(n - n_rows + i + 1);
    begin.push_back(i % 3 == 1 ? end.back() / 2 : 0);
  }
  a.q = q.data();
  a.q_stride = a.dk;
  a.n_rows = n_rows;
  a.begin = begin.data();
  a.end = end.data();
  a.position = position.data();
  const std::vector<float> got = attend(table, a);
  std::vector<double> expected(got.size());
  reference::attention(a, expected.data());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], expected[i], 1e-5) << table.name << " " << what << " n " << n;
  }
  for (int32_t i = 0; i < n_rows; i += 7) {
    AttentionArgs few = a;
    few.q = a.q + i * a.dk;
    few.n_rows = std::min(1 + i % 6, n_rows - i);
    few.begin = a.begin + i;
    few.end = a.end + i;
    few.position = a.position + i;
    const std::vector<float> alone = attend(table, few);
    ASSERT_EQ(std::memcmp(alone.data(), &got[static_cast<size_t>(i * a.dv)],
                          alone.size() * sizeof(float)),
              0)
        << table.name << " " << what << " row " << i;
  }
}

TEST(KvAttention, EqualsAttentionOverTheDequantizedValues) {
  const int32_t sizes[][2] = {{8, 8}, {24, 40}, {80, 64}, {96, 96}, {128, 128}};
  for (const Table* table : tables()) {
    for (const KvType k : kTypes) {
      for (const KvType v : kTypes) {
        const int pair = static_cast<int>(k) * 4 + static_cast<int>(v);
        const auto& size = sizes[pair % 5];
        for (const int32_t n : {70, 64, 230}) {
          if (k != v && n != 70 && !test::long_suite()) continue;
          const Cache cache(*table, k, v, size[0], size[1], n);
          expect_as_defined(*table, cache.args(), n, "types " + std::to_string(pair));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// As latent attention caches them: the first channels of a key are its value.
TEST(KvAttention, ValuesInKeys) {
  for (const Table* table : tables()) {
    for (const KvType type : kTypes) {
      for (const int32_t dk : {24, 72, 192}) {
        const Cache cache(*table, type, KvType::kF16, dk, 8, 230);
        AttentionArgs a = cache.args();
        a.v = a.k;
        a.v_type = type;
        a.recent_v = a.recent_k;
        a.v_stride = dk;
        a.dv = dk - 8;
        expect_as_defined(*table, a, 230, "type " + std::to_string(static_cast<int>(type)));
        if (HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace sluice::kernels

// Matrix products of every type on every table this machine runs: against the double-precision
// reference within a named error budget, and against themselves to the bit, whatever the form
// (file or packed), the number of tokens, or the split of the rows.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/reference/reference.h"

namespace sluice::kernels {
namespace {

constexpr Type kAllTypes[] = {Type::kF32,   Type::kF16,    Type::kBF16,  Type::kQ4_0,  Type::kQ4_1,
                              Type::kQ5_0,  Type::kQ5_1,   Type::kQ8_0,  Type::kQ2_K,  Type::kQ3_K,
                              Type::kQ4_K,  Type::kQ5_K,   Type::kQ6_K,  Type::kMXFP4, Type::kTQ1_0,
                              Type::kTQ2_0, Type::kIQ4_NL, Type::kIQ4_XS};

struct Name {
  Type type;
  const char* text;
};
const char* type_name(Type type) {
  static constexpr Name kNames[] = {
      {Type::kF32, "F32"},     {Type::kF16, "F16"},       {Type::kBF16, "BF16"},
      {Type::kQ4_0, "Q4_0"},   {Type::kQ4_1, "Q4_1"},     {Type::kQ5_0, "Q5_0"},
      {Type::kQ5_1, "Q5_1"},   {Type::kQ8_0, "Q8_0"},     {Type::kQ2_K, "Q2_K"},
      {Type::kQ3_K, "Q3_K"},   {Type::kQ4_K, "Q4_K"},     {Type::kQ5_K, "Q5_K"},
      {Type::kQ6_K, "Q6_K"},   {Type::kMXFP4, "MXFP4"},   {Type::kTQ1_0, "TQ1_0"},
      {Type::kTQ2_0, "TQ2_0"}, {Type::kIQ4_NL, "IQ4_NL"}, {Type::kIQ4_XS, "IQ4_XS"}};
  for (const Name& n : kNames) {
    if (n.type == type) return n.text;
  }
  return "?";
}

// Byte offsets of the 16-bit scales inside a block: random bits there would be infinities.
std::vector<size_t> half_offsets(Type type) {
  switch (type) {
    case Type::kQ4_0:
    case Type::kQ5_0:
    case Type::kQ8_0:
    case Type::kIQ4_NL:
    case Type::kIQ4_XS:
      return {0};
    case Type::kQ4_1:
    case Type::kQ5_1:
    case Type::kQ4_K:
    case Type::kQ5_K:
      return {0, 2};
    case Type::kQ2_K:
      return {80, 82};
    case Type::kQ3_K:
      return {108};
    case Type::kQ6_K:
      return {208};
    case Type::kTQ1_0:
      return {52};
    case Type::kTQ2_0:
      return {64};
    default:
      return {};
  }
}

// rows x cols random weights of file layout: random bits, with sane scales.
std::vector<uint8_t> random_weights(Type type, int64_t rows, int64_t cols, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, 0.05f);
  std::vector<uint8_t> bytes(static_cast<size_t>(rows) * reference::row_bytes(type, cols));
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(rng());
  const size_t block = reference::block_bytes(type);
  for (size_t at = 0; at < bytes.size(); at += block) {
    const float value = normal(rng);
    const f16 half = reference::f32_to_f16(value);
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    const uint16_t brain = static_cast<uint16_t>(bits >> 16);
    if (type == Type::kF32) std::memcpy(&bytes[at], &value, 4);
    if (type == Type::kF16) std::memcpy(&bytes[at], &half, 2);
    if (type == Type::kBF16) std::memcpy(&bytes[at], &brain, 2);
    if (type == Type::kMXFP4) bytes[at] = static_cast<uint8_t>(120 + rng() % 8);
    for (size_t offset : half_offsets(type)) {
      const f16 scale = reference::f32_to_f16(normal(rng));
      std::memcpy(&bytes[at + offset], &scale, 2);
    }
  }
  return bytes;
}

std::vector<float> random_acts(int64_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = normal(rng);
  return x;
}

// Heap memory of exactly the asked size at 64-byte alignment plus `skew`, so that the address
// sanitizer sees every byte past the end.
class Bytes {
 public:
  explicit Bytes(size_t n, size_t skew = 0) {
    raw_ = std::aligned_alloc(64, (n + skew + 63) / 64 * 64);
    // aligned_alloc wants multiples; keep the data at the very end so that overreads are seen.
    data_ = static_cast<uint8_t*>(raw_) + ((n + skew + 63) / 64 * 64 - n - skew) / 64 * 64;
    data_ += skew;
  }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  ~Bytes() { std::free(raw_); }
  uint8_t* data() { return data_; }

 private:
  void* raw_;
  uint8_t* data_;
};

std::vector<uint8_t> pack(const Table& table, Type type, const std::vector<uint8_t>& file,
                          int64_t rows, int64_t cols) {
  const size_t group = table.packed_group_bytes(type, cols);
  const int64_t n_groups = (rows + table.row_group - 1) / table.row_group;
  Bytes buffer(group);
  std::vector<uint8_t> packed;
  for (int64_t g = 0; g < n_groups; ++g) {
    const int64_t row = g * table.row_group;
    const int32_t n = static_cast<int32_t>(std::min<int64_t>(table.row_group, rows - row));
    table.pack_group(type, &file[static_cast<size_t>(row) * reference::row_bytes(type, cols)], n,
                     cols, buffer.data());
    packed.insert(packed.end(), buffer.data(), buffer.data() + group);
  }
  return packed;
}

struct Problem {
  const Table& table;
  Type type;
  int64_t rows, cols;
  int32_t n_tokens;
  std::vector<uint8_t> file, packed;
  std::vector<float> x;
  std::vector<uint8_t> q8;

  Problem(const Table& t, Type ty, int64_t r, int64_t c, int32_t n)
      : table(t), type(ty), rows(r), cols(c), n_tokens(n) {
    file = random_weights(type, rows, cols, static_cast<uint32_t>(rows * 31 + cols));
    packed = pack(table, type, file, rows, cols);
    x = random_acts(cols * n, static_cast<uint32_t>(cols * 17 + n));
    const size_t per_token = table.q8_bytes(cols);
    q8.resize(per_token * static_cast<size_t>(n));
    for (int32_t i = 0; i < n; ++i) {
      table.quantize_q8(&x[static_cast<size_t>(i * cols)], cols,
                        &q8[static_cast<size_t>(i) * per_token]);
    }
  }
  std::vector<float> run(bool use_packed, int32_t t0, int32_t n, int64_t r0, int64_t r1) const {
    Bytes scratch(table.matmul_scratch(type, cols));
    std::vector<float> y(static_cast<size_t>(rows * n), 0.0f);
    MatmulArgs a = {};
    a.w = {type, use_packed, rows, cols, use_packed ? packed.data() : file.data()};
    a.r0 = r0;
    a.r1 = r1;
    a.x = {x.data() + t0 * cols, cols, q8.data() + static_cast<size_t>(t0) * table.q8_bytes(cols),
           n};
    a.scale = 1.0f;
    a.y = y.data();
    a.ldy = rows;
    a.scratch = scratch.data();
    table.matmul(a);
    return y;
  }
};

// Normalised mean square error that rounding the activations to 8 bits may cause; f32 types only
// round sums.
double error_budget(const Table& table, Type type) {
  return table.act_format(type) == ActFormat::kF32 ? 1e-12 : 1e-4;
}

std::vector<const Table*> tables() {
  std::vector<const Table*> all;
  for (const char* const* name = available(); *name != nullptr; ++name)
    all.push_back(by_name(*name));
  return all;
}

TEST(Matmul, MatchesReferenceAndItself) {
  for (const Table* table : tables()) {
    for (Type type : kAllTypes) {
      ASSERT_TRUE(table->supports(type)) << type_name(type);
      SCOPED_TRACE(std::string(table->name) + " " + type_name(type));
      const int64_t block = reference::block_values(type);
      for (int64_t rows : {1, 5, 8, 16, 23, 40}) {
        for (int64_t cols : {block, 3 * block, block == 1 ? 172 : 4 * block}) {
          const Problem p(*table, type, rows, cols, 15);
          std::vector<double> exact(static_cast<size_t>(rows * p.n_tokens));
          reference::matmul(type, p.file.data(), rows, cols, p.x.data(), cols, p.n_tokens,
                            exact.data(), rows);
          const std::vector<float> all = p.run(true, 0, p.n_tokens, 0, rows);
          double error = 0, power = 0;
          for (size_t i = 0; i < exact.size(); ++i) {
            error += (all[i] - exact[i]) * (all[i] - exact[i]);
            power += exact[i] * exact[i];
          }
          EXPECT_LE(error, error_budget(*table, type) * power) << rows << "x" << cols;
          EXPECT_EQ(p.run(false, 0, p.n_tokens, 0, rows), all) << "file form";
          for (int32_t t = 0; t < p.n_tokens; ++t) {
            const std::vector<float> one = p.run(true, t, 1, 0, rows);
            for (int64_t r = 0; r < rows; ++r) {
              ASSERT_EQ(one[static_cast<size_t>(r)], all[static_cast<size_t>(t * rows + r)]);
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace sluice::kernels

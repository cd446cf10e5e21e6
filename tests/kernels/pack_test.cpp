// Packing is lossless: every row comes back as the reference dequantizes it, from full and partial
// groups. Packed weights are never smaller nor much larger than the file's.
#include <gtest/gtest.h>

#include "tests/kernels/matmul_util.h"

namespace sluice::kernels {
namespace {

TEST(Pack, RowsComeBack) {
  for (const Table* table : tables()) {
    for (const WeightType& w : weight_types()) {
      SCOPED_TRACE(std::string(table->name) + " " + w.name);
      const int64_t block = reference::block_values(w.type);
      for (int64_t rows :
           {int64_t{1}, int64_t{table->row_group}, 2 * int64_t{table->row_group} + 3}) {
        const int64_t cols = block == 1 ? 53 : 3 * block;
        const std::vector<uint8_t> file =
            random_weights(w, rows, cols, static_cast<uint32_t>(rows));
        const std::vector<uint8_t> packed = pack(*table, w.type, file, rows, cols);
        const Buffer data(packed.data(), packed.size(), 0);
        const Matrix m = {w.type, true, rows, cols, data.data()};
        for (int64_t r = 0; r < rows; ++r) {
          std::vector<float> expected(static_cast<size_t>(cols)), row(expected.size());
          const size_t row_bytes = reference::row_bytes(w.type, cols);
          reference::dequantize(w.type, &file[static_cast<size_t>(r) * row_bytes], cols,
                                expected.data());
          table->unpack_row(m, r, row.data());
          for (size_t i = 0; i < row.size(); ++i) {
            const bool same_bits = std::memcmp(&row[i], &expected[i], sizeof(float)) == 0;
            ASSERT_TRUE(same_bits) << "row " << r << ", value " << i << ": " << row[i];
          }
        }
      }
    }
  }
}

// Rows in file layout, as of embeddings, at any alignment.
TEST(Pack, RowsInFileLayoutAreDequantized) {
  for (const Table* table : tables()) {
    for (const WeightType& w : weight_types()) {
      const int64_t n = 5 * reference::block_values(w.type);
      const std::vector<uint8_t> file = random_weights(w, 1, n, 9);
      std::vector<float> expected(static_cast<size_t>(n)), values(expected.size());
      reference::dequantize(w.type, file.data(), n, expected.data());
      const Buffer src(file.data(), file.size(), 3);
      table->dequantize(w.type, src.data(), n, values.data());
      ASSERT_EQ(std::memcmp(values.data(), expected.data(), values.size() * sizeof(float)), 0)
          << table->name << " " << w.name;
      table->dequantize(w.type, nullptr, 0, values.data());
    }
  }
}

TEST(Pack, SizesStayNearTheFile) {
  constexpr int64_t kCols = 4096;
  for (const Table* table : tables()) {
    for (const WeightType& w : weight_types()) {
      const size_t group = table->packed_group_bytes(w.type, kCols);
      const size_t file =
          reference::row_bytes(w.type, kCols) * static_cast<size_t>(table->row_group);
      EXPECT_GE(group, file) << w.name;
      // Base-3 digits are unpacked to two bits. 6-bit scales become bytes, and in WebAssembly f16
      // super-scales become f32. Blocks of 64 values are as in the file.
      const double most = w.type == Type::kTQ1_0                         ? 1.27
                          : reference::block_values(w.type) == kQsfBlock ? 1
                                                                         : 1.06;
      EXPECT_LE(static_cast<double>(group), most * static_cast<double>(file)) << w.name;
      EXPECT_EQ(group % 64, 0u);
    }
  }
}

TEST(Pack, EveryScaleOfMxfp4ComesBack) {
  for (const Table* table : tables()) {
    for (int e = 0; e < 256; ++e) {
      std::vector<uint8_t> file(17, 0x21);
      file[0] = static_cast<uint8_t>(e);
      const std::vector<uint8_t> packed = pack(*table, Type::kMXFP4, file, 1, 32);
      std::vector<float> row(32), expected(32);
      reference::dequantize(Type::kMXFP4, file.data(), 32, expected.data());
      table->unpack_row({Type::kMXFP4, true, 1, 32, packed.data()}, 0, row.data());
      ASSERT_EQ(row, expected) << e;
    }
  }
}

}  // namespace
}  // namespace sluice::kernels

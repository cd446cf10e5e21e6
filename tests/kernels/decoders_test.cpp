// The decoders for AVX-512 VBMI write what the generic ones write.
#if defined(__x86_64__)
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "kernels/isa/vbmi_decoders.h"
#include "kernels/kernels.h"
#include "tests/kernels/matmul_util.h"

namespace sluice::kernels {
namespace {

class Decoders : public testing::Test {
 protected:
  void SetUp() override {
    table_ = by_name("avx512vnni");
    if (table_ == nullptr || !avx512vbmi::enabled()) GTEST_SKIP() << "no AVX-512 VBMI here";
  }
  void TearDown() override { avx512vbmi::enabled() = was_enabled_; }

  std::vector<float> unpacked(const Matrix& m, bool faster) {
    avx512vbmi::enabled() = faster;
    std::vector<float> out(static_cast<size_t>(m.rows * m.cols));
    for (int64_t row = 0; row < m.rows; ++row)
      table_->unpack_row(m, row, &out[static_cast<size_t>(row * m.cols)]);
    return out;
  }

  const Table* table_ = nullptr;

 private:
  const bool was_enabled_ = avx512vbmi::enabled();
};

TEST_F(Decoders, OfVbmiWriteTheSameBits) {
  constexpr int64_t kRows = 32, kCols = 2560;
  for (const WeightType& w : weight_types()) {
    SCOPED_TRACE(w.name);
    const auto file = random_weights(w, kRows, kCols, 5);
    const auto packed = pack(*table_, w.type, file, kRows, kCols);
    const Buffer data(packed.data(), packed.size(), 0);
    const Matrix m = {
        .type = w.type, .packed = true, .rows = kRows, .cols = kCols, .data = data.data()};
    EXPECT_EQ(unpacked(m, true), unpacked(m, false));
  }
}

}  // namespace
}  // namespace sluice::kernels
#endif

// Blocks that LZ4's library made decode to the same bytes in any pieces of input and output.
// Damaged ones are an error or end within their bounds.
#include "qsf/lz4_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>
#include <vector>

#include "qsf/codec.h"
#include "qsf_file.h"

namespace sluice {
namespace {

using Lz4Block = std::vector<uint8_t>;

// Decodes a block in pieces of random sizes up to the given ones. False: it is damaged.
bool decode_pieces(const Lz4Block& block, size_t give, size_t take, Lz4Block* out) {
  std::mt19937 random(11);
  Lz4Block window(qsf::Lz4Stream::kWindow);
  qsf::Lz4Stream stream;
  stream.start(window);
  std::span<const uint8_t> rest = block, in;
  std::span<uint8_t> to = *out;
  for (;;) {
    std::span<uint8_t> piece = to.first(std::min<size_t>(to.size(), 1 + random() % take));
    const size_t size = piece.size();
    if (!stream.decode(&in, &piece)) return false;
    to = to.subspan(size - piece.size());
    if (!in.empty()) {
      if (to.empty()) return false;
      continue;
    }
    if (rest.empty() && (to.empty() || !piece.empty())) return to.empty() && stream.at_end();
    const size_t n = std::min<size_t>(rest.size(), 1 + random() % give);
    in = rest.first(n);
    rest = rest.subspan(n);
  }
}

// Text-like, repetitive, random and constant stretches.
Lz4Block mixed_content(size_t n) {
  std::mt19937 random(3);
  Lz4Block out;
  while (out.size() < n) {
    const size_t kind = random() % 4, length = 1 + random() % 9000;
    const size_t back = 1 + random() % 70000;
    for (size_t i = 0; i < length; ++i) {
      const auto draw = static_cast<uint8_t>(random() >> 24);
      if (kind == 0) out.push_back(draw);
      if (kind == 1) out.push_back(draw & 3);
      if (kind == 2) out.push_back(7);
      if (kind == 3) out.push_back(back <= out.size() ? out[out.size() - back] : draw);
    }
  }
  out.resize(n);
  return out;
}

TEST(Lz4Stream, DecodesInAnyPieces) {
  if (!test::can_pack(convert::Packing::kLz4)) GTEST_SKIP() << "no LZ4 library";
  for (const auto compression : {qsf::Compression::kLz4, qsf::Compression::kLz4Hc}) {
    for (const size_t n : {1u, 12u, 70u, 65536u, 400000u}) {
      const Lz4Block wanted = mixed_content(n);
      Lz4Block block;
      ASSERT_TRUE(qsf::Packer(compression).pack(wanted, &block).ok());
      for (const auto& [give, take] : {std::pair<size_t, size_t>{1u << 20, 1u << 20},
                                       {100, 70000},
                                       {70000, 100},
                                       {900, 900}}) {
        Lz4Block got(n);
        ASSERT_TRUE(decode_pieces(block, give, take, &got)) << n << " by " << give << ", " << take;
        EXPECT_EQ(got, wanted) << n << " by " << give << ", " << take;
      }
      Lz4Block longer(n + 1), shorter(n - 1);
      EXPECT_FALSE(decode_pieces(block, 1000, 1000, &longer));
      EXPECT_FALSE(decode_pieces(block, 1000, 1000, &shorter));
    }
  }
}

TEST(Lz4Stream, RejectsWhatIsNoBlock) {
  Lz4Block out(20);
  EXPECT_FALSE(decode_pieces({0x10, 7, 2, 0, 0x10, 7}, 9, 99, &out));  // a match before the start
  EXPECT_FALSE(decode_pieces({0x10, 7, 0, 0, 0x10, 7}, 9, 99, &out));  // at a distance of 0
  EXPECT_FALSE(decode_pieces({0x14, 7, 1, 0}, 9, 99, &out));           // ends behind a match
  std::mt19937 random(5);
  Lz4Block window(qsf::Lz4Stream::kWindow);
  for (int i = 0; i < 20000; ++i) {
    Lz4Block odd(1 + random() % 40);
    for (uint8_t& byte : odd) byte = static_cast<uint8_t>(random() >> 24);
    qsf::Lz4Stream stream;
    stream.start(window);
    std::span<const uint8_t> in = odd;
    std::span<uint8_t> to = std::span(out).first(1 + random() % 20);
    const size_t size = to.size();
    (void)stream.decode(&in, &to);
    EXPECT_LE(in.size(), odd.size());
    EXPECT_LE(to.size(), size);
  }
}

}  // namespace
}  // namespace sluice

// Replaces the codes of a block whose scales stay. Types that code several values together have no
// code for a single value.
#pragma once

#include <type_traits>

#include "convert/codebook_writers.h"

namespace sluice::convert {
namespace {

// Number of codes that a value can have; 0: it has none of its own, or 256, where rounding hardly
// matters.
template <class Block>
constexpr int kCodes = 0;
template <>
constexpr int kCodes<kernels::BlockQ4_0> = 16;
template <>
constexpr int kCodes<kernels::BlockQ4_1> = 16;
template <>
constexpr int kCodes<kernels::BlockQ5_0> = 32;
template <>
constexpr int kCodes<kernels::BlockQ5_1> = 32;
template <>
constexpr int kCodes<kernels::BlockIQ4_NL> = 16;
template <>
constexpr int kCodes<kernels::BlockMXFP4> = 16;
template <>
constexpr int kCodes<kernels::BlockNVFP4> = 16;
template <>
constexpr int kCodes<kernels::BlockQ2_K> = 4;
template <>
constexpr int kCodes<kernels::BlockQ3_K> = 8;
template <>
constexpr int kCodes<kernels::BlockQ4_K> = 16;
template <>
constexpr int kCodes<kernels::BlockQ5_K> = 32;
template <>
constexpr int kCodes<kernels::BlockQ6_K> = 64;
template <>
constexpr int kCodes<kernels::BlockIQ4_XS> = 16;
template <>
constexpr int kCodes<kernels::BlockTQ1_0> = 3;
template <>
constexpr int kCodes<kernels::BlockTQ2_0> = 3;
template <>
constexpr int kCodes<kernels::BlockQ1_0> = 2;
template <>
constexpr int kCodes<kernels::BlockQ2_0> = 4;
template <>
constexpr int kCodes<kernels::BlockQSF2> = 4;
template <>
constexpr int kCodes<kernels::BlockQSF3> = 8;
template <>
constexpr int kCodes<kernels::BlockQSF4> = 16;
template <>
constexpr int kCodes<kernels::BlockQSFT> = 3;

// Writes the codes q of a block, in the order of its values.
template <class Block>
void put_codes(const uint8_t* q, Block* b) {
  using namespace kernels;
  if constexpr (std::is_same_v<Block, BlockQ5_0> || std::is_same_v<Block, BlockQ5_1>) {
    pack_small<5>(q, b);
  } else if constexpr (std::is_same_v<Block, BlockQ3_K>) {
    pack_two_bits(q, b->qs);
    pack_high_bits(q, 2, b->hmask);
  } else if constexpr (std::is_same_v<Block, BlockQ2_K> || std::is_same_v<Block, BlockTQ2_0>) {
    pack_two_bits(q, b->qs);
  } else if constexpr (std::is_same_v<Block, BlockQ4_K>) {
    pack_k_nibbles(q, b->qs);
  } else if constexpr (std::is_same_v<Block, BlockQ5_K>) {
    pack_k_nibbles(q, b->qs);
    pack_high_bits(q, 4, b->qh);
  } else if constexpr (std::is_same_v<Block, BlockQ6_K>) {
    pack_six_bits(q, b);
  } else if constexpr (std::is_same_v<Block, BlockIQ4_XS>) {
    for (int j = 0; j < 8; ++j) pack_nibbles(q + 32 * j, b->qs + 16 * j);
  } else if constexpr (std::is_same_v<Block, BlockNVFP4>) {
    for (int j = 0; j < 4; ++j) {
      for (int i = 0; i < 8; ++i) b->qs[8 * j + i] = byte(q[16 * j + i] | q[16 * j + i + 8] << 4);
    }
  } else if constexpr (std::is_same_v<Block, BlockTQ1_0>) {
    pack_base3(q, b);
  } else if constexpr (std::is_same_v<Block, BlockQSFT>) {
    pack_ternary(q, b);
  } else if constexpr (std::is_same_v<Block, BlockQ1_0>) {
    pack_in_order<1>(q, b->qs);
  } else if constexpr (std::is_same_v<Block, BlockQ2_0> || std::is_same_v<Block, BlockQSF2>) {
    pack_in_order<2>(q, b->qs);
  } else if constexpr (std::is_same_v<Block, BlockQSF3>) {
    pack_in_order<3>(q, b->qs);
  } else if constexpr (std::is_same_v<Block, BlockQSF4>) {
    pack_in_order<4>(q, b->qs);
  } else {
    pack_nibbles(q, b->qs);
  }
}

}  // namespace
}  // namespace sluice::convert

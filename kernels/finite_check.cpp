// Finds weights that are NaN or infinite. Rounding activations to int8 would hide them, and the
// model would generate plausible nonsense. Codes of block types are integers and a finite f16 scale
// is far from overflow, so the scales decide; only MXFP4's scales reach f32's limits.
#include <cstddef>
#include <cstring>

#include "kernels/blocks.h"

namespace sluice::kernels {
namespace {

bool bad_half(f16 bits) {
  return (bits & 0x7c00u) == 0x7c00u;
}

// The largest magnitude, 12 * 2^(e - 128), is below 2^128 up to e = 252; 255 is the format's NaN.
bool bad(const BlockMXFP4& b) {
  if (b.e < 253) return false;
  if (b.e == 255) return true;
  const int limit = b.e == 254 ? 4 : 8;  // values of kMxfp4Values from here on reach 2^128
  for (const uint8_t codes : b.qs) {
    if (kMxfp4Values[codes & 7] >= limit || kMxfp4Values[codes >> 4 & 7] >= limit) return true;
  }
  return false;
}
bool mxfp4(const void* src, int64_t n) {
  const auto* bytes = static_cast<const uint8_t*>(src);
  bool found = false;
  for (int64_t i = 0; i < n / kSmallBlock; ++i) {
    BlockMXFP4 block;
    std::memcpy(&block, bytes + static_cast<size_t>(i) * sizeof block, sizeof block);
    found |= bad(block);
  }
  return !found;
}

// Where the scales of a block are; `second` equals `first` if there is only one.
struct Scales {
  size_t bytes, first, second;
};
template <typename Block>
constexpr Scales scales() {
  size_t second = offsetof(Block, d);
  if constexpr (requires(Block b) { b.m; }) second = offsetof(Block, m);
  if constexpr (requires(Block b) { b.dmin; }) second = offsetof(Block, dmin);
  return {sizeof(Block), offsetof(Block, d), second};
}

// One loop for all types rather than one per type: it reads two numbers of a block ten times as
// long, so specialization gains nothing.
[[gnu::noinline]] bool blocks(const Scales& at, const void* src, int64_t n, int64_t block_values) {
  const auto* bytes = static_cast<const uint8_t*>(src);
  bool found = false;  // no early exit: bad weights are rare, and this loop has no branch
  for (int64_t i = 0; i < n / block_values; ++i, bytes += at.bytes) {
    f16 first, second;
    std::memcpy(&first, bytes + at.first, sizeof first);
    std::memcpy(&second, bytes + at.second, sizeof second);
    found |= bad_half(first);
    found |= bad_half(second);
  }
  return !found;
}

// The scale of IQ1_M is in the upper four bits of four words.
bool iq1_m(const void* src, int64_t n) {
  const auto* bytes = static_cast<const uint8_t*>(src);
  bool found = false;
  for (int64_t i = 0; i < n / kSuperBlock; ++i, bytes += sizeof(BlockIQ1_M)) {
    // Exponent: bits 10 to 14.
    const uint8_t* high = bytes + offsetof(BlockIQ1_M, scales) + 1;
    found |= (high[6] & 0x70) == 0x70 && (high[4] & 0xc0) == 0xc0;
  }
  return !found;
}

template <typename Block>
bool finite(const void* src, int64_t n, int64_t block_values) {
  return blocks(scales<Block>(), src, n, block_values);
}
template <>
bool finite<BlockMXFP4>(const void* src, int64_t n, int64_t) {
  return mxfp4(src, n);
}
template <>
bool finite<BlockIQ1_M>(const void* src, int64_t n, int64_t) {
  return iq1_m(src, n);
}
template <>
bool finite<BlockNVFP4>(const void*, int64_t, int64_t) {
  return true;  // scales are at most 240
}

// Checks elements: bad if all bits of the exponent `mask` are set.
template <typename Bits>
bool elements(const void* src, int64_t n, Bits mask) {
  const auto* bytes = static_cast<const uint8_t*>(src);
  bool found = false;
  for (int64_t i = 0; i < n; ++i) {
    Bits value;
    std::memcpy(&value, bytes + static_cast<size_t>(i) * sizeof value, sizeof value);
    found |= (value & mask) == mask;
  }
  return !found;
}

}  // namespace

bool all_finite(Type type, const void* src, int64_t n) {
  switch (type) {
    case Type::kF32:
      return elements<uint32_t>(src, n, 0x7f800000u);
    case Type::kF16:
      return elements<uint16_t>(src, n, 0x7c00u);
    case Type::kBF16:
      return elements<uint16_t>(src, n, 0x7f80u);
#define SLUICE_BLOCK_TYPE(NAME, name, id, values, bytes) \
  case Type::k##NAME:                                    \
    return finite<Block##NAME>(src, n, values);
#include "kernels/types.def"
  }
  return false;  // a type without a kernel
}

}  // namespace sluice::kernels

// The loop over blocks that all types share.
#pragma once

#include <cstring>

#include "kernels/blocks.h"

namespace sluice::kernels::reference {

// values(block, out) for each block of `per_block` values.
template <class Block, class Values>
void dequantize_blocks(const void* src, int64_t n, int64_t per_block, float* out,
                       const Values& values) {
  const uint8_t* p = static_cast<const uint8_t*>(src);
  for (int64_t i = 0; i < n; i += per_block) {
    Block b;
    std::memcpy(&b, p, sizeof b);
    values(b, out + i);
    p += sizeof b;
  }
}

}  // namespace sluice::kernels::reference

// Headers of f32 tensors that lie one behind the other.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "gguf/gguf.h"

namespace sluice::test {

// A tensor of this shape for each name; the header refers to `names`.
inline gguf::Header header_of(const std::vector<std::string>& names, uint32_t n_dims,
                              std::array<uint64_t, 4> ne) {
  gguf::Header header;
  for (const std::string& name : names) {
    gguf::Tensor t;
    t.name = name;
    t.n_dims = n_dims;
    t.ne = ne;
    EXPECT_TRUE(gguf::set_tensor_bytes(&t).ok());
    t.offset = header.tensors.empty() ? 0 : header.tensors.back().offset + t.bytes;
    header.tensors.push_back(t);
  }
  EXPECT_TRUE(gguf::index_tensors(&header).ok());
  return header;
}

}  // namespace sluice::test

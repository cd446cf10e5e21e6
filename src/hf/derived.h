// Tensors that a checkpoint stores otherwise than GGUF does, and not only under another name or
// with a number to be told of. They lie in a file that is nowhere: whoever reads a part of it makes
// the bytes of those of the checkpoint's files (native/derived_source.h).
#pragma once

#include <array>
#include <cstdint>

#include "gguf/gguf.h"

namespace sluice::hf {

// A run of bytes of that file, made of chunks of a tensor that are regularly apart.
struct Derived {
  enum class Kind : uint8_t {
    kGather,       // as they are, in another order
    kNegativeExp,  // of a chunk of one value, -exp(x) in f32
    kMxfp4,  // a chunk is the 16 bytes of values of each block of a row: their order is another
             // one, and each block's scale, which is stored elsewhere, goes before them
    kZero,   // nothing is read, one chunk of zeros
  };
  Kind kind = Kind::kGather;
  gguf::TensorType type{};  // of kNegativeExp's values
  uint32_t file = 0, scale_file = 0;
  uint64_t begin = 0, bytes = 0;    // of the run
  uint64_t offset = 0, scales = 0;  // in those files, of the first chunk; of its scales
  uint64_t chunk = 0;               // stored bytes; of kMxfp4 without the scales, 16 a block
  std::array<uint64_t, 3> counts{1, 1, 1}, strides{};  // of chunks, outermost first; bytes apart

  [[nodiscard]] uint64_t made_chunk() const {
    if (kind == Kind::kNegativeExp) return 4;
    return kind == Kind::kMxfp4 ? chunk / 16 * 17 : chunk;
  }
};

inline constexpr uint64_t kMostDerivedSpan = 8u << 20;  // bytes that a line of small chunks lies in
// A chunk from this size on is read by itself; smaller ones by lines of counts[2], as one span.
inline constexpr uint64_t kWholeChunk = 4096;

}  // namespace sluice::hf

// Tensors whose layout in a checkpoint differs from GGUF's. They are in a virtual file: a read of
// it computes the bytes from the checkpoint's files (native/tensor_transform_source.h,
// web/io/safetensors.ts). This module tells what to read and how to transform it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "gguf/gguf.h"

namespace sluice::hf {

// A run of bytes of the virtual file, made from chunks of a tensor at regular distances.
struct Derived {
  enum class Kind : uint8_t {
    kGather,       // copies the chunks in another order
    kNegativeExp,  // a chunk is one value x and becomes -exp(x) in f32
    kPlusOne,      // the same, and becomes x + 1
    kMxfp4,  // a chunk is a row's blocks, 16 bytes of values each; reorders the values and puts the
             // block's scale, from another tensor, before them
    kZero,   // one chunk of zeros; nothing is read
  };
  Kind kind = Kind::kGather;
  gguf::TensorType type{};  // of the values of kNegativeExp and kPlusOne
  uint32_t file = 0, scale_file = 0;
  uint64_t begin = 0, bytes = 0;    // of the run in the virtual file
  uint64_t offset = 0, scales = 0;  // of the first chunk in `file`; of its scales in `scale_file`
  uint64_t chunk = 0;               // stored bytes; for kMxfp4 without scales, 16 per block
  std::array<uint64_t, 3> counts{1, 1, 1}, strides{};  // of chunks, outermost first; in bytes

  [[nodiscard]] uint64_t made_chunk() const {
    if (kind == Kind::kNegativeExp || kind == Kind::kPlusOne) return 4;
    return kind == Kind::kMxfp4 ? chunk / 16 * 17 : chunk;
  }
};

inline constexpr uint64_t kMaxDerivedSpan = 8u << 20;  // span of a line of small chunks, in bytes
// Chunks of at least this size are read one by one. Smaller ones are read in lines of counts[2]
// chunks, by one read of the whole span.
inline constexpr uint64_t kWholeChunk = 4096;

// How to make the next bytes of the virtual file.
struct DerivedPart {
  enum class Kind : uint8_t {
    kZero,  // zeros
    kCopy,  // copy them from `offset` of `file`
    kLine,  // make_line() makes a line from the bytes there; take it from `within` on
  };
  Kind kind = Kind::kZero;
  uint64_t bytes = 0;  // their number
  uint32_t run = 0;    // index of the run
  uint32_t file = 0, scale_file = 0;
  uint64_t offset = 0, scales = 0;       // in those files
  uint64_t stored = 0, scale_bytes = 0;  // kLine: bytes to read there
  uint64_t within = 0;
};
// The part for at most `length` bytes from `offset` on; nullopt beyond the end. `runs` are sorted
// by address.
[[nodiscard]] std::optional<DerivedPart> next_part(std::span<const Derived> runs, uint64_t offset,
                                                   uint64_t length);

// Bytes of the largest line, as stored and as made; its scales take `stored` / 16.
struct LineRoom {
  uint64_t stored = 0, made = 0;
};
[[nodiscard]] LineRoom line_room(std::span<const Derived> runs);
void make_line(const Derived& run, const uint8_t* stored, const uint8_t* scales, uint8_t* made);

}  // namespace sluice::hf

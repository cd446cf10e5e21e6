// Tensors that a checkpoint stores otherwise than GGUF does, and not only under another name or
// with a number to be told of. They lie in a file that is nowhere: whoever reads a part of it makes
// the bytes of those of the checkpoint's files (native/tensor_transform_source.h,
// web/io/safetensors.ts). What to read for that, and what to make of it, is here.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

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

inline constexpr uint64_t kMaxDerivedSpan = 8u << 20;  // bytes that a line of small chunks lies in
// A chunk from this size on is read by itself; smaller ones by lines of counts[2], as one span.
inline constexpr uint64_t kWholeChunk = 4096;

// What the next bytes of the file come from.
struct DerivedPart {
  enum class Kind : uint8_t {
    kZero,  // nothing
    kCopy,  // they are at `offset` of `file`
    kLine,  // make_line() makes a line of what is there; they are those from `within` on
  };
  Kind kind = Kind::kZero;
  uint64_t bytes = 0;  // how many they are
  uint32_t run = 0;    // which of the runs
  uint32_t file = 0, scale_file = 0;
  uint64_t offset = 0, scales = 0;       // in those files
  uint64_t stored = 0, scale_bytes = 0;  // of kLine, to be read there
  uint64_t within = 0;
};
// Of at most `length` bytes from `offset` on; nothing behind the end. `runs` by address.
[[nodiscard]] std::optional<DerivedPart> next_part(std::span<const Derived> runs, uint64_t offset,
                                                   uint64_t length);

// Bytes of the largest line, as it is stored and as it is made; its scales are `stored` / 16.
struct LineRoom {
  uint64_t stored = 0, made = 0;
};
[[nodiscard]] LineRoom line_room(std::span<const Derived> runs);
void make_line(const Derived& run, const uint8_t* stored, const uint8_t* scales, uint8_t* made);

}  // namespace sluice::hf

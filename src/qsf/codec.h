// Compressing and decompressing with Debian's LZ4 and Zstandard: for native programs; a browser has
// web/io/lz4.ts and fzstd. Where these libraries are missing (a build for another processor) every
// call says so.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "qsf/qsf.h"

namespace sluice::qsf {

// What our writer compresses at once with Zstandard: one of its blocks, so that few bytes are
// unpacked in vain where a part of a layer is wanted.
inline constexpr uint32_t kFrameBytes = 128 << 10;

class Packer {
 public:
  explicit Packer(Compression compression);
  ~Packer();
  Packer(const Packer&) = delete;
  Packer& operator=(const Packer&) = delete;

  // Most bytes that `n` can become.
  [[nodiscard]] static uint64_t most(Compression compression, uint64_t n);
  // Appends `in`, compressed, to *out: a frame of Zstandard, or a block of LZ4.
  [[nodiscard]] Status pack(std::span<const uint8_t> in, std::vector<uint8_t>* out);
  // What such a packer holds beside its caller's bytes.
  [[nodiscard]] static uint64_t memory(Compression compression);

 private:
  struct Context;
  Compression compression_;
  std::unique_ptr<Context> context_;
};

class Unpacker {
 public:
  Unpacker();
  ~Unpacker();
  Unpacker(Unpacker&&) noexcept;
  Unpacker& operator=(Unpacker&&) noexcept;

  // False when `in` is not what becomes exactly `out`.
  [[nodiscard]] bool unpack(Compression compression, std::span<const uint8_t> in,
                            std::span<uint8_t> out);
  [[nodiscard]] static uint64_t memory();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

// The list of frames at the end of a layer that was compressed frame by frame: Zstandard's seekable
// format, a frame that its decoders skip. Source: zstd, contrib/seekable_format.
[[nodiscard]] std::vector<uint8_t> frame_list(std::span<const uint32_t> stored, uint64_t bytes);
// Bytes of that list for a layer.
[[nodiscard]] uint64_t frame_list_bytes(const Run& run);
[[nodiscard]] inline uint64_t frame_count(const Run& run) {
  return run.frame == 0 || run.frame >= run.bytes ? 1 : (run.bytes + run.frame - 1) / run.frame;
}
// Where in the layer each frame begins, and the end of the last, from such a list.
// Errors: kBadHeader.
[[nodiscard]] Status read_frame_list(const Run& run, std::span<const uint8_t> list,
                                     std::span<uint32_t> starts);

}  // namespace sluice::qsf

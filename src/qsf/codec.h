// Compresses with the system's LZ4 and Zstandard libraries and decompresses Zstandard, in native
// programs. lz4_stream.h decodes LZ4. The browser uses web/io/lz4.ts and fzstd. In a build without
// these libraries every call fails.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "qsf/qsf.h"

namespace sluice::qsf {

// Unpacked bytes of a Zstandard frame that our writer makes: one Zstandard block. Reading a part of
// a layer then unpacks few unneeded bytes.
inline constexpr uint32_t kFrameBytes = 128 << 10;

class Packer {
 public:
  explicit Packer(Compression compression);
  ~Packer();
  Packer(const Packer&) = delete;
  Packer& operator=(const Packer&) = delete;

  // The largest compressed size of `n` bytes.
  [[nodiscard]] static uint64_t most(Compression compression, uint64_t n);
  // Compresses `in` and appends it to *out as a Zstandard frame or an LZ4 block.
  [[nodiscard]] Status pack(std::span<const uint8_t> in, std::vector<uint8_t>* out);
  // Bytes that such a packer allocates, besides the caller's buffers.
  [[nodiscard]] static uint64_t memory(Compression compression);

 private:
  struct Context;
  Compression compression_;
  std::unique_ptr<Context> context_;
};

// Decompresses Zstandard frames.
class Unpacker {
 public:
  Unpacker();
  ~Unpacker();
  Unpacker(Unpacker&&) noexcept;
  Unpacker& operator=(Unpacker&&) noexcept;

  // False when `in` does not decompress to exactly out.size() bytes.
  [[nodiscard]] bool unpack(std::span<const uint8_t> in, std::span<uint8_t> out);
  [[nodiscard]] static uint64_t memory();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

// The seek table at the end of a layer that was compressed in several frames: Zstandard's seekable
// format, a frame that decoders skip. Source: zstd, contrib/seekable_format.
[[nodiscard]] std::vector<uint8_t> frame_list(std::span<const uint32_t> stored, uint64_t bytes);
// The size of a layer's seek table in bytes.
[[nodiscard]] uint64_t frame_list_bytes(const Run& run);
[[nodiscard]] inline uint64_t frame_count(const Run& run) {
  return run.frame == 0 || run.frame >= run.bytes ? 1 : (run.bytes + run.frame - 1) / run.frame;
}
// Reads the start of each frame in the layer, and the end of the last one, from a seek table.
// Errors: kBadHeader.
[[nodiscard]] Status read_frame_list(const Run& run, std::span<const uint8_t> list,
                                     std::span<uint32_t> starts);

}  // namespace sluice::qsf

// The QSF container, versions 1 and 2. Each layer of the model is a contiguous run of bytes with a
// checksum, and may be compressed. This module parses the start of a file and describes the model
// as a gguf::Header, so the rest of the engine sees no difference. It does no I/O. Every count,
// length and offset is checked before it is used.
//
// Compressed layers: the engine expects plain bytes, so tensors of a compressed layer get virtual
// addresses from kUnpacked on, which lie beyond every file. Each layer has 4 GB of this address
// space for its unpacked bytes. The reader of files (native/qsf_source.h, web/io/qsf.ts) serves
// these addresses. All other addresses are offsets in the file.
//
// Files that this program writes begin with the header, the layer index and the metadata section.
// Behind its keys, the metadata section has these fields, which the format has no place for:
//   tensor infos as in a GGUF header; their offsets are addresses as above;
//   sections of 24 bytes: offset u64, bytes u64, CRC-32 u32, zero u32; they cover the bytes outside
//   layers (embedding, final, and all other tensors);
//   tensors u32, sections u32, CRC-32 u32 of header bytes 100 to 127, index and metadata section up
//   to this field, "QSFT".
//
// In version 2, expert tensors of mixtures are in no layer but in records (experts.h), at virtual
// addresses from kExperts on.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"

namespace sluice::qsf {

inline constexpr uint32_t kMagic = 0x31465351;         // "QSF1"
inline constexpr uint32_t kTrailerMagic = 0x54465351;  // "QSFT"
inline constexpr uint64_t kHeaderBytes = 128;
inline constexpr uint64_t kEntryBytes = 32;
inline constexpr uint64_t kSectionBytes = 24;
inline constexpr uint64_t kTrailerBytes = 16;
inline constexpr uint64_t kTensorHeaderBytes = 16;
inline constexpr uint64_t kTensorAlignment = 64;
inline constexpr uint32_t kNamed = 0x80000000u;  // flag of a tensor type: holds the name's length

// Caps for untrusted headers.
inline constexpr uint32_t kMaxLayers = 1u << 12;
inline constexpr uint32_t kMaxSections = 16;
inline constexpr uint64_t kMaxExpansion = 255;    // of a frame, when unpacked: LZ4's limit
inline constexpr uint64_t kSmallFrame = 1 << 20;  // unpacked bytes of frames without that limit

inline constexpr uint64_t kUnpacked = 1ull << 48;
inline constexpr int kUnpackedBits = 32;  // address bits of one layer

inline constexpr uint64_t kExperts = 1ull << 52;
inline constexpr uint32_t kNewestVersion = 2;

enum class Compression : uint8_t { kNone = 0, kLz4 = 1, kLz4Hc = 2, kZstd = 3 };

// Bytes of the file that one checksum covers.
struct Run {
  uint64_t offset = 0;   // in the file
  uint64_t stored = 0;   // bytes in the file
  uint64_t address = 0;  // of the unpacked bytes
  uint64_t bytes = 0;    // unpacked
  uint32_t crc = 0;      // of the stored bytes
  // Unpacked bytes of each Zstandard frame but the last, for a layer that is compressed in
  // independent frames (the index entry's reserved field); 0: one frame.
  uint32_t frame = 0;
  uint16_t tensors = 0;  // in the layer
  Compression compression = Compression::kNone;
  bool layer = false;
  bool expert = false;
};

[[nodiscard]] bool is_qsf(gguf::Bytes prefix);

// Parses the start of a file of `file_size` bytes from `prefix`, its first bytes. Like
// gguf::parse_header, it returns how many bytes it needs. Views in *out point into the prefix; the
// bytes before the metadata section are overwritten. `runs` are sorted by address.
// Errors: kNotGguf, kUnsupportedVersion, kBadHeader, kTruncated, kCorrupt (a checksum).
[[nodiscard]] Result<gguf::ParseProgress> parse(std::span<uint8_t> prefix, uint64_t file_size,
                                                gguf::Header* out, std::vector<Run>* runs);

// The size of a tensor's header within a layer, including the name, which tensors without a code of
// their own have. The data follows at the next multiple of the alignment.
[[nodiscard]] uint64_t tensor_header_bytes(std::string_view name);
// The format's code of a name such as "blk.7.attn_q.weight"; -1: none.
[[nodiscard]] int32_t tensor_code(std::string_view name);
// The name that a code stands for, without its layer, such as "attn_q.weight"; "": none.
[[nodiscard]] std::string_view tensor_name(uint32_t code);

}  // namespace sluice::qsf

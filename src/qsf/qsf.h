// The QSF container, version 1: a model whose layers are runs of bytes, each with a checksum and
// maybe compressed. This room reads what stands at the front of such a file and describes the model
// as a gguf::Header, so that nothing above knows the difference; it does no I/O, and every count,
// length and offset is checked before it is believed.
//
// How a compressed layer meets an engine that wants plain bytes: its tensors have addresses beyond
// every file, kUnpacked and up, where the layer's own 4 GB of address space hold what it unpacks
// to. Whoever reads files for the engine (native/qsf_source.h, web/io/qsf.ts) serves these
// addresses; all others are offsets in the file itself.
//
// At the front, in files that this program writes: header, layer index, and the metadata section,
// which goes on behind its keys with what the format has no place for:
//   tensor infos of a GGUF header, their offsets being addresses as above;
//   sections of 24 bytes: offset u64, bytes u64, CRC-32 u32, zero u32; of bytes that are no layer's
//   (embedding, final, and those tensors that are in none of the three);
//   tensors u32, sections u32, CRC-32 u32 of header bytes 100 to 127, index and metadata section up
//   to this field, "QSFT".
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
inline constexpr uint32_t kNamed = 0x80000000u;  // a tensor type that says how long the name is

// Caps for untrusted headers.
inline constexpr uint32_t kMaxLayers = 1u << 12;
inline constexpr uint32_t kMaxSections = 16;
inline constexpr uint64_t kMaxExpansion = 255;    // of a large frame: LZ4 can do no more
inline constexpr uint64_t kSmallFrame = 1 << 20;  // of which it does not matter

inline constexpr uint64_t kUnpacked = 1ull << 48;
inline constexpr int kUnpackedBits = 32;  // address bits of one layer

enum class Compression : uint8_t { kNone = 0, kLz4 = 1, kLz4Hc = 2, kZstd = 3 };

// Bytes of the file that one checksum covers.
struct Run {
  uint64_t offset = 0;   // in the file
  uint64_t stored = 0;   // bytes there
  uint64_t address = 0;  // where the engine finds them, unpacked
  uint64_t bytes = 0;    // of them
  uint32_t crc = 0;      // of the bytes stored
  // Unpacked bytes of each frame but the last, where the layer is compressed in frames that know
  // nothing of each other (the index entry's reserved field); 0: the layer is one.
  uint32_t frame = 0;
  uint16_t tensors = 0;  // of a layer
  Compression compression = Compression::kNone;
  bool layer = false;
};

[[nodiscard]] bool is_qsf(gguf::Bytes prefix);

// Parses the front in `prefix`, the first bytes of a file of `file_size` bytes; like
// gguf::parse_header it says when it needs more. Views in *out point into the prefix, whose bytes
// before the metadata section are overwritten. `runs` come in the order of their addresses.
// Errors: kNotGguf, kUnsupportedVersion, kBadHeader, kTruncated, kCorrupt (a checksum).
[[nodiscard]] Result<gguf::ParseProgress> parse(std::span<uint8_t> prefix, uint64_t file_size,
                                                gguf::Header* out, std::vector<Run>* runs);

// Bytes of a tensor's header within a layer, its name included, for tensors of a type of their own
// and others. Behind them the data begin at the next multiple of the alignment.
[[nodiscard]] uint64_t tensor_header_bytes(std::string_view name);
// The format's number for "blk.7.attn_q.weight" and its like; -1: none.
[[nodiscard]] int32_t tensor_code(std::string_view name);

}  // namespace sluice::qsf

// Reads the directory of a zip file with uncompressed members, as PyTorch writes it. Does no I/O.
// Format: APPNOTE.TXT 6.3, 4.3 (with ZIP64, 4.3.14 and 4.5.3)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"

namespace sluice::pytorch {

inline constexpr uint64_t kMaxZipDirectory = 64ull << 20;
inline constexpr uint64_t kZipTail = (1 << 16) + 128;  // last bytes, which contain the end records
inline constexpr uint64_t kZipLocalHeader = 30;  // fixed part before a member's name and bytes

struct ZipDirectory {
  uint64_t offset = 0, bytes = 0, members = 0;
};
struct ZipMember {
  std::string name;
  uint64_t header = 0;  // offset of its local header
  uint64_t bytes = 0;
};

// Finds the directory of a file of `file_size` bytes from its last kZipTail bytes, or from all
// bytes of a smaller file. Errors: kBadHeader, kTruncated; messages begin with `file`.
[[nodiscard]] Result<ZipDirectory> find_zip_directory(gguf::Bytes tail, uint64_t file_size,
                                                      const char* file);
// Parses the members in the directory's bytes. Errors: the same, and kUnsupportedType for
// compressed or encrypted members.
[[nodiscard]] Result<std::vector<ZipMember>> parse_zip_directory(gguf::Bytes directory,
                                                                 const ZipDirectory& found,
                                                                 const char* file);
// The offset of a member's bytes, from the kZipLocalHeader bytes of its local header. Errors:
// kBadHeader, and kTruncated if the member extends into the directory.
[[nodiscard]] Result<uint64_t> find_zip_member(gguf::Bytes local_header, const ZipMember& member,
                                               const ZipDirectory& found, const char* file);

}  // namespace sluice::pytorch

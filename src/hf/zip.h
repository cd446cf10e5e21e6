// The directory of a zip file whose members are stored as they are, which is what PyTorch writes.
// Without I/O. Format: APPNOTE.TXT 6.3, 4.3 (with ZIP64, 4.3.14 and 4.5.3)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"

namespace sluice::hf {

inline constexpr uint64_t kMaxZipDirectory = 64ull << 20;
inline constexpr uint64_t kZipTail = (1 << 16) + 128;  // bytes at the end in which its records are
inline constexpr uint64_t kZipLocalHeader = 30;        // in front of a member, and two lengths more

struct ZipDirectory {
  uint64_t offset = 0, bytes = 0, members = 0;
};
struct ZipMember {
  std::string name;
  uint64_t header = 0;  // offset of its local header
  uint64_t bytes = 0;
};

// Where the directory of a file of `file_size` bytes lies, from its last bytes, kZipTail of them or
// all. Errors: kBadHeader, kTruncated; messages begin with `file`.
[[nodiscard]] Result<ZipDirectory> find_zip_directory(gguf::Bytes tail, uint64_t file_size,
                                                      const char* file);
// The members that the directory's bytes list. Errors: the same, kUnsupportedType where one is
// compressed or encrypted.
[[nodiscard]] Result<std::vector<ZipMember>> parse_zip_directory(gguf::Bytes directory,
                                                                 const ZipDirectory& found,
                                                                 const char* file);
// Offset of a member's bytes, given the kZipLocalHeader bytes at its header. Errors: kBadHeader,
// kTruncated where they end behind the directory's begin.
[[nodiscard]] Result<uint64_t> find_zip_member(gguf::Bytes local_header, const ZipMember& member,
                                               const ZipDirectory& found, const char* file);

}  // namespace sluice::hf

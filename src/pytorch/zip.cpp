// Reads the records from the end of the file: end of directory, directory, local headers.
#include "pytorch/zip.h"

#include <cstring>

#include "gguf/printable.h"

namespace sluice::pytorch {
namespace {

using gguf::Bytes;

constexpr uint32_t kEnd = 0x06054b50, kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
constexpr uint32_t kMember = 0x02014b50, kLocal = 0x04034b50;
constexpr uint64_t kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20, kMemberBytes = 46;
constexpr uint32_t kIn64 = 0xffffffff;  // marks a field whose value is in the 64-bit record

template <typename T>
T field(Bytes bytes, uint64_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

Status bad(const char* file, const char* what) {
  return error(Code::kBadHeader, "%s: %s", file, what);
}

// Reads the 64-bit fields that replace those marked kIn64, in their order.
Status read_sizes(Bytes extra, ZipMember* member, uint64_t* stored, const char* file) {
  for (uint64_t at = 0; at + 4 <= extra.size();) {
    const auto id = field<uint16_t>(extra, at);
    const uint64_t n = field<uint16_t>(extra, at + 2);
    if (n > extra.size() - at - 4) break;
    if (id != 1) {
      at += 4 + n;
      continue;
    }
    uint64_t next = at + 4;
    for (uint64_t* value : {&member->bytes, stored, &member->header}) {
      if (*value != kIn64) continue;
      if (next + 8 > at + 4 + n) return bad(file, "a member's size is missing");
      *value = field<uint64_t>(extra, next);
      next += 8;
    }
    return {};
  }
  const bool whole = member->bytes != kIn64 && *stored != kIn64 && member->header != kIn64;
  return whole ? Status() : bad(file, "a member's size is missing");
}

}  // namespace

Result<ZipDirectory> find_zip_directory(Bytes tail, uint64_t file_size, const char* file) {
  const uint64_t before = file_size - tail.size();
  for (uint64_t at = tail.size(); at-- > 0;) {
    if (at + kEndBytes > tail.size() || field<uint32_t>(tail, at) != kEnd) continue;
    if (at + kEndBytes + field<uint16_t>(tail, at + 20) != tail.size()) continue;
    ZipDirectory out{field<uint32_t>(tail, at + 16), field<uint32_t>(tail, at + 12),
                     field<uint16_t>(tail, at + 10)};
    uint64_t end = before + at;
    if (at >= kLocatorBytes + kEnd64Bytes &&
        field<uint32_t>(tail, at - kLocatorBytes) == kLocator64) {
      const auto record = field<uint64_t>(tail, at - kLocatorBytes + 8);
      if (record < before || record - before > at - kLocatorBytes - kEnd64Bytes ||
          field<uint32_t>(tail, record - before) != kEnd64) {
        return bad(file, "its directory is not where it should be");
      }
      const uint64_t from = record - before;
      out = {field<uint64_t>(tail, from + 48), field<uint64_t>(tail, from + 40),
             field<uint64_t>(tail, from + 32)};
      end = record;
    }
    if (out.bytes > end || out.offset > end - out.bytes) {
      return bad(file, "its directory is not where it should be");
    }
    if (out.bytes > kMaxZipDirectory || out.members > out.bytes / kMemberBytes) {
      return bad(file, "its directory is too large");
    }
    return out;
  }
  return error(Code::kTruncated,
               "%s has no zip directory: it is truncated, or in the older format of torch.save, "
               "which is not supported",
               file);
}

Result<std::vector<ZipMember>> parse_zip_directory(Bytes in, const ZipDirectory& found,
                                                   const char* file) {
  std::vector<ZipMember> out;
  uint64_t at = 0;
  for (uint64_t i = 0; i < found.members; ++i) {
    if (in.size() - at < kMemberBytes || field<uint32_t>(in, at) != kMember) {
      return bad(file, "its directory is invalid");
    }
    const uint64_t name = field<uint16_t>(in, at + 28), extra = field<uint16_t>(in, at + 30);
    const uint64_t comment = field<uint16_t>(in, at + 32);
    if (in.size() - at - kMemberBytes < name + extra + comment) {
      return bad(file, "its directory is invalid");
    }
    ZipMember& member = out.emplace_back();
    const auto* text = reinterpret_cast<const char*>(in.data()) + at + kMemberBytes;
    member.name.assign(text, static_cast<size_t>(name));
    uint64_t stored = field<uint32_t>(in, at + 20);
    member.bytes = field<uint32_t>(in, at + 24);
    member.header = field<uint32_t>(in, at + 42);
    SLUICE_RETURN_IF_ERROR(read_sizes(
        in.subspan(static_cast<size_t>(at + kMemberBytes + name), static_cast<size_t>(extra)),
        &member, &stored, file));
    const bool encrypted = (field<uint16_t>(in, at + 8) & 1) != 0;
    if (encrypted || field<uint16_t>(in, at + 10) != 0 || stored != member.bytes) {
      return error(Code::kUnsupportedType, "%s: its member \"%s\" is compressed or encrypted", file,
                   gguf::printable(member.name, 64).c_str());
    }
    at += kMemberBytes + name + extra + comment;
  }
  return out;
}

Result<uint64_t> find_zip_member(Bytes local, const ZipMember& member, const ZipDirectory& found,
                                 const char* file) {
  if (local.size() < kZipLocalHeader || field<uint32_t>(local, 0) != kLocal) {
    return bad(file, "a member's local header is not where the directory says");
  }
  const uint64_t at =
      member.header + kZipLocalHeader + field<uint16_t>(local, 26) + field<uint16_t>(local, 28);
  if (at > found.offset || member.bytes > found.offset - at) {
    return error(Code::kTruncated, "%s: its member \"%s\" extends into the directory", file,
                 gguf::printable(member.name, 64).c_str());
  }
  return at;
}

}  // namespace sluice::pytorch

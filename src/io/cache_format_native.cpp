// Header of an index file, little-endian:
//    0   8  "SLCACHE", format version 1
//    8   8  time of use
//   16   4  xxh32 of bytes 20 to 44 + T
//   20   4  chunk size: a power of two, 4 KiB to 4 MiB
//   24   8  size of the file
//   32   8  time of creation
//   40   4  T
//   44   T  address, ETag and Last-Modified, separated by newlines
#include "io/cache_format_native.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstring>

namespace sluice::io {

namespace {

static_assert(std::endian::native == std::endian::little);
constexpr char kMagic[8] = {'S', 'L', 'C', 'A', 'C', 'H', 'E', 1};
constexpr size_t kChecksumOffset = 16, kChecked = 20, kTextOffset = 44;
constexpr size_t kMaxText = kCacheHeaderBytes - kTextOffset;

template <typename T>
T get(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
template <typename T>
void put(uint8_t* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

// FNV-1a. It only names entries; the address in the header is compared.
std::string hash_name(std::string_view text) {
  uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  char name[17];
  std::snprintf(name, sizeof name, "%016llx", static_cast<unsigned long long>(h));
  return name;
}

bool is_hash(std::string_view text) {
  return text.size() == 16 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

uint32_t xxh32(std::span<const uint8_t> bytes) {
  constexpr uint32_t kP1 = 0x9e3779b1, kP2 = 0x85ebca77, kP3 = 0xc2b2ae3d, kP4 = 0x27d4eb2f,
                     kP5 = 0x165667b1;
  const uint8_t* at = bytes.data();
  const uint8_t* const end = at + bytes.size();
  uint32_t h = kP5;
  if (bytes.size() >= 16) {
    std::array<uint32_t, 4> lanes{kP1 + kP2, kP2, 0, 0u - kP1};
    for (; end - at >= 16; at += 16) {
      for (size_t i = 0; i < 4; ++i) {
        lanes[i] = std::rotl(lanes[i] + get<uint32_t>(at + 4 * i) * kP2, 13) * kP1;
      }
    }
    h = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) +
        std::rotl(lanes[3], 18);
  }
  h += static_cast<uint32_t>(bytes.size());
  for (; end - at >= 4; at += 4) h = std::rotl(h + get<uint32_t>(at) * kP3, 17) * kP4;
  for (; at != end; ++at) h = std::rotl(h + *at * kP5, 11) * kP1;
  h = (h ^ (h >> 15)) * kP2;
  h = (h ^ (h >> 13)) * kP3;
  return h ^ (h >> 16);
}

std::string cache_prefix(std::string_view url) {
  return "1-" + hash_name(url) + "-";
}

std::string cache_name(const CacheHeader& file, std::span<const uint8_t> head) {
  std::string version = file.etag.empty() ? file.last_modified : file.etag;
  if (version.empty()) {
    char text[16];
    std::snprintf(text, sizeof text, "head:%08x",
                  xxh32(head.first(std::min<size_t>(head.size(), kCacheHeadBytes))));
    version = text;
  }
  return cache_prefix(file.url) + hash_name(std::to_string(file.size) + '\n' + version);
}

bool is_cache_name(std::string_view name) {
  return name.size() == 35 && name.substr(0, 2) == "1-" && is_hash(name.substr(2, 16)) &&
         name[18] == '-' && is_hash(name.substr(19));
}

std::vector<uint8_t> encode_cache_header(const CacheHeader& file) {
  const std::string text = file.url + '\n' + file.etag + '\n' + file.last_modified;
  if (text.size() > kMaxText) return {};
  std::vector<uint8_t> out(kCacheHeaderBytes);
  std::memcpy(out.data(), kMagic, sizeof kMagic);
  put(&out[kCacheUsedOffset], file.used);
  put(&out[20], file.chunk_bytes);
  put(&out[24], file.size);
  put(&out[32], file.created);
  put(&out[40], static_cast<uint32_t>(text.size()));
  std::memcpy(&out[kTextOffset], text.data(), text.size());
  put(&out[kChecksumOffset],
      xxh32(std::span(out).subspan(kChecked, kTextOffset - kChecked + text.size())));
  return out;
}

std::optional<CacheHeader> decode_cache_header(std::span<const uint8_t> bytes) {
  if (bytes.size() < kCacheHeaderBytes || std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0) {
    return std::nullopt;
  }
  const auto length = get<uint32_t>(&bytes[40]);
  if (length > kMaxText) return std::nullopt;
  if (xxh32(bytes.subspan(kChecked, kTextOffset - kChecked + length)) !=
      get<uint32_t>(&bytes[kChecksumOffset])) {
    return std::nullopt;
  }
  CacheHeader file;
  file.used = get<int64_t>(&bytes[kCacheUsedOffset]);
  file.chunk_bytes = get<uint32_t>(&bytes[20]);
  file.size = get<uint64_t>(&bytes[24]);
  file.created = get<int64_t>(&bytes[32]);
  const std::string_view text(reinterpret_cast<const char*>(&bytes[kTextOffset]), length);
  const size_t first = text.find('\n');
  const size_t second = first == std::string_view::npos ? first : text.find('\n', first + 1);
  const bool sane = std::has_single_bit(file.chunk_bytes) && file.chunk_bytes >= 4096 &&
                    file.chunk_bytes <= kCacheBlockBytes && file.size <= kMaxCachedBytes &&
                    file.size / file.chunk_bytes <= kMaxCachedBytes / kCacheChunkBytes;
  if (!sane || second == std::string_view::npos) return std::nullopt;
  file.url = text.substr(0, first);
  file.etag = text.substr(first + 1, second - first - 1);
  file.last_modified = text.substr(second + 1);
  return file;
}

}  // namespace sluice::io

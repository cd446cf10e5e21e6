// Header of an index file, little-endian:
//    0   8  "SLCACHE", format version 1
//    8   8  time of use, a double in milliseconds
//   16   4  xxh32 of the text
//   20   4  T
//   24   T  text, lines: size, chunk size, time of creation, address, ETag, Last-Modified
#include "io/cache_format_native.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstdio>
#include <cstring>

namespace sluice::io {

namespace {

static_assert(std::endian::native == std::endian::little);
constexpr char kMagic[8] = {'S', 'L', 'C', 'A', 'C', 'H', 'E', 1};
constexpr size_t kTextOffset = 24;
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

template <typename T>
bool parse(std::string_view text, T* out) {
  const auto [end, bad] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return bad == std::errc() && end == text.data() + text.size();
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
  const std::string text = std::to_string(file.size) + '\n' + std::to_string(file.chunk_bytes) +
                           '\n' + std::to_string(file.created) + '\n' + file.url + '\n' +
                           file.etag + '\n' + file.last_modified;
  if (text.size() > kMaxText) return {};
  std::vector<uint8_t> out(kCacheHeaderBytes);
  std::memcpy(out.data(), kMagic, sizeof kMagic);
  put(&out[kCacheUsedOffset], static_cast<double>(file.used));
  std::memcpy(&out[kTextOffset], text.data(), text.size());
  put(&out[16], xxh32(std::span(out).subspan(kTextOffset, text.size())));
  put(&out[20], static_cast<uint32_t>(text.size()));
  return out;
}

std::optional<CacheHeader> decode_cache_header(std::span<const uint8_t> bytes) {
  if (bytes.size() < kCacheHeaderBytes || std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0) {
    return std::nullopt;
  }
  const auto length = get<uint32_t>(&bytes[20]);
  if (length > kMaxText || xxh32(bytes.subspan(kTextOffset, length)) != get<uint32_t>(&bytes[16])) {
    return std::nullopt;
  }
  std::string_view text(reinterpret_cast<const char*>(&bytes[kTextOffset]), length);
  std::array<std::string_view, 6> lines;
  for (std::string_view& line : lines) {
    line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  CacheHeader file;
  const double used = get<double>(&bytes[kCacheUsedOffset]);
  file.used = used >= 0 && used < 1e15 ? static_cast<int64_t>(used) : 0;
  const bool sane = parse(lines[0], &file.size) && parse(lines[1], &file.chunk_bytes) &&
                    parse(lines[2], &file.created) && file.size <= kMaxCachedBytes &&
                    file.chunk_bytes >= 4096 && kCacheBlockBytes % file.chunk_bytes == 0 &&
                    file.size / file.chunk_bytes <= kMaxCachedBytes / kCacheChunkBytes;
  if (!sane) return std::nullopt;
  file.url = lines[3];
  file.etag = lines[4];
  file.last_modified = lines[5];
  return file;
}

}  // namespace sluice::io

// The format of the model cache, without I/O: names, the header and the records of an index file,
// and checksums. docs/model-cache.md is the specification. web/io/store-index.ts implements it for
// Node and the browser; tests/data/model-cache.json has values that both must produce.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::io {

// One version of a file on a server.
struct CacheHeader {
  std::string url;  // stored_address()
  std::string etag, last_modified;
  uint64_t size = 0;  // of the file, in bytes
  uint32_t chunk_bytes = 0;
  int64_t created = 0, used = 0;  // milliseconds since 1970

  [[nodiscard]] uint64_t n_chunks() const { return (size + chunk_bytes - 1) / chunk_bytes; }
};

inline constexpr uint32_t kCacheChunkBytes = 256 << 10;  // of new entries
inline constexpr uint64_t kCacheHeaderBytes = 8192;      // records follow
inline constexpr size_t kCacheUsedOffset = 8;            // of the time of use, which may change
inline constexpr uint64_t kCacheBlockBytes = 4 << 20;    // of the file, fetched under one lock
inline constexpr uint64_t kCacheHeadBytes = 64 << 10;    // identify a file without validators
inline constexpr uint64_t kMaxCachedBytes = 1ull << 42;

struct CacheRecord {
  uint32_t mark = 0;  // kMark: the chunk is present
  uint32_t checksum = 0;
  static constexpr uint32_t kMark = 0x4b4e4843;  // "CHNK"
};
static_assert(sizeof(CacheRecord) == 8);

// xxHash32 with seed 0.
[[nodiscard]] uint32_t xxh32(std::span<const uint8_t> bytes);

// Names of entries: all versions of an address begin with cache_prefix(). `head` are the file's
// first kCacheHeadBytes; they are used when the server sends no validators.
[[nodiscard]] std::string cache_prefix(std::string_view url);
[[nodiscard]] std::string cache_name(const CacheHeader& file, std::span<const uint8_t> head);
[[nodiscard]] bool is_cache_name(std::string_view name);

// The first kCacheHeaderBytes of an index file. Empty if the addresses are too long for it.
[[nodiscard]] std::vector<uint8_t> encode_cache_header(const CacheHeader& file);
// Nullopt if the header is damaged or of another format.
[[nodiscard]] std::optional<CacheHeader> decode_cache_header(std::span<const uint8_t> bytes);

}  // namespace sluice::io

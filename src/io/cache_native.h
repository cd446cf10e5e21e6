// The model cache: files from servers, on disk in chunks with a checksum each. `npx sluice-llm` and
// Node read and write the same files (web/io/store-node.ts); docs/model-cache.md is the
// specification. One version of a file is one directory with two files: `data`, as long as the
// remote file, and `index`, a header and one record per chunk. A record is written after its data,
// so a crash loses at most the current chunk. A chunk whose checksum does not match counts as
// missing, so no fsync is needed. Directories appear and disappear by renaming, and all writers of
// one write the same bytes, so several processes can share it without locks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "io/cache_format_native.h"
#include "io/cache_lock_native.h"
#include "platform/file.h"

namespace sluice::io {

// One cached version of a file.
struct CachedFile {
  std::string path;  // its directory
  CacheHeader header;
  uint64_t stored_bytes = 0;
};

// An open cached file.
class ChunkStore {
 public:
  static constexpr uint64_t kBlockBytes = kCacheBlockBytes;

  // The versions of `url` in `dir`.
  [[nodiscard]] static std::vector<CachedFile> versions(const std::string& dir,
                                                        const std::string& url);
  // Opens an entry. Null if it is missing, damaged or not of the file in `header`.
  [[nodiscard]] static std::unique_ptr<ChunkStore> open(const std::string& path,
                                                        const CacheHeader& header);
  // Opens the entry for a version of a file, and creates it if it is missing. `dir` is created if
  // missing. `head`: the first kCacheHeadBytes of the file, if it has no validators. With
  // `max_bytes`, least recently used entries that are not in use make room; 0: no limit.
  // Errors: kIo.
  [[nodiscard]] static Result<std::unique_ptr<ChunkStore>> create(
      const std::string& dir, CacheHeader header, std::span<const uint8_t> head = {},
      uint64_t max_bytes = 0);
  // An unnamed store, which is deleted with the object.
  [[nodiscard]] static Result<std::unique_ptr<ChunkStore>> open_temporary(uint64_t size);
  ChunkStore(const ChunkStore&) = delete;
  ChunkStore& operator=(const ChunkStore&) = delete;

  [[nodiscard]] uint64_t size() const { return header_.size; }
  [[nodiscard]] const CacheHeader& header() const { return header_; }
  [[nodiscard]] uint64_t n_chunks() const { return header_.n_chunks(); }
  [[nodiscard]] uint64_t chunk_bytes(uint64_t chunk) const;
  [[nodiscard]] bool has(uint64_t chunk) const;
  // Blocks of kBlockBytes, each of several chunks.
  [[nodiscard]] uint64_t n_blocks() const { return (size() + kBlockBytes - 1) / kBlockBytes; }
  [[nodiscard]] uint64_t block_bytes(uint64_t block) const;
  [[nodiscard]] bool has_block(uint64_t block) const;
  // Runs of missing chunks in a block: the first, and one past the last.
  struct Run {
    uint64_t first, end;
  };
  [[nodiscard]] std::vector<Run> missing(uint64_t block) const;
  [[nodiscard]] uint64_t missing_bytes() const;

  void drop(uint64_t chunk);
  // Deletes the other versions of the file, except those in use.
  void remove_others() const;

  // Reads a range whose chunks are all present. The first read of a chunk verifies all of it.
  // Errors: kCorrupt; a chunk was damaged or missing, and has been dropped.
  [[nodiscard]] Status read(uint64_t offset, std::span<uint8_t> out);

  // Keeps other processes from fetching the same block. Null when `give_up` returned true.
  [[nodiscard]] std::unique_ptr<BlockLock> lock(uint64_t block,
                                                const std::function<bool()>& give_up);

  // Writes chunks in order, from `chunk` on. A chunk exists once all its bytes have been appended.
  class Writer {
   public:
    Writer(ChunkStore* store, uint64_t chunk) : store_(store), chunk_(chunk) {}
    // False, then status(): the cache cannot be written, or the file ends earlier.
    [[nodiscard]] bool append(std::span<const uint8_t> bytes);
    [[nodiscard]] const Status& status() const { return status_; }
    // The chunk that will be written next.
    [[nodiscard]] uint64_t chunk() const { return chunk_; }

   private:
    ChunkStore* store_;
    uint64_t chunk_;
    std::vector<uint8_t> bytes_;
    Status status_;
  };

 private:
  ChunkStore(platform::File index, platform::File data, CacheHeader header, std::string path,
             std::unique_ptr<UseLock> in_use);
  [[nodiscard]] Status check(uint64_t chunk);
  [[nodiscard]] Status write(uint64_t chunk, std::span<const uint8_t> bytes);
  [[nodiscard]] std::vector<CacheRecord> records(uint64_t first, uint64_t end) const;
  void set_checked(uint64_t chunk, bool value);
  [[nodiscard]] bool is_checked(uint64_t chunk);

  const platform::File index_;
  const platform::File data_;
  const CacheHeader header_;
  const std::string path_;  // empty: temporary
  const std::unique_ptr<UseLock> in_use_;
  std::mutex mutex_;
  std::vector<bool> checked_;  // chunks whose checksum this process has verified
};

// All cached files that one address loads: a file, the parts of a split model, or the files of a
// directory.
struct CacheEntry {
  std::string url;                // without secrets
  uint64_t size = 0;              // of all its files, in bytes
  uint64_t stored_bytes = 0;      // of these, the cached ones
  int64_t created = 0, used = 0;  // milliseconds since 1970
  bool complete = false;
  std::vector<CachedFile> files;  // the largest first
};

// Lists the entries, most recently used first. Empty if the directory does not exist.
[[nodiscard]] std::vector<CacheEntry> list_cache(const std::string& dir);
// The entry of an address.
[[nodiscard]] std::optional<CacheEntry> find_cached(const std::string& dir, const std::string& url);
// Deletes all versions of an address's files. False when there were none. Errors: kCacheLocked
// while they are in use.
[[nodiscard]] Result<bool> delete_cached(const std::string& dir, const std::string& url);
// Deletes the least recently used entries until at most `max_bytes` are stored. Entries in use
// stay. Returns the addresses of the deleted ones.
[[nodiscard]] std::vector<std::string> evict_cache(const std::string& dir, uint64_t max_bytes);

}  // namespace sluice::io

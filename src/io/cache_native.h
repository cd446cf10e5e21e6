// The chunk store: caches a remote file on disk in chunks of 4 MB, each with a checksum.
// An entry is two files: KEY.data (sparse, as long as the remote file) and KEY.meta (a header that
// names the remote file, then one record per chunk: checksum and mark). A record is written after
// its data, so a crash loses at most the current chunk. A chunk whose checksum does not match
// counts as missing, so no fsync is needed. Several processes can share an entry. Each holds a
// shared lock on the entry, and a byte lock for each chunk that it fetches. KEY is a hash of the
// address (without secrets) and of the file's version on the server, so versions never mix. Older
// versions are deleted once the first chunk of a new one is stored.
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
#include "platform/file.h"

namespace sluice::io {

class ChunkStore {
 public:
  static constexpr uint64_t kChunkBytes = 4ull << 20;

  // Opens or creates the entry of (url, version, size) in `dir`, which is created if missing. Once
  // the entry has its first chunk, unused other versions of the url are removed. Errors: kIo.
  [[nodiscard]] static Result<std::unique_ptr<ChunkStore>> open(const std::string& dir,
                                                                const std::string& url,
                                                                const std::string& version,
                                                                uint64_t size);
  // Reads up to `most` first bytes of a cached version of `url`, preferably of `version`; *same
  // tells whether it is that one. Returns nullopt when no version is cached, and an empty vector
  // when the version's first chunk is missing.
  [[nodiscard]] static std::optional<std::vector<uint8_t>> beginning(const std::string& dir,
                                                                     const std::string& url,
                                                                     const std::string& version,
                                                                     uint64_t size, size_t most,
                                                                     bool* same);
  // Opens the entry of any complete version of `url`. Errors: kNotFound when there is none.
  [[nodiscard]] static Result<std::unique_ptr<ChunkStore>> open_complete(const std::string& dir,
                                                                         const std::string& url);
  // An unnamed store, which is deleted with the object.
  [[nodiscard]] static Result<std::unique_ptr<ChunkStore>> open_temporary(uint64_t size);
  ChunkStore(const ChunkStore&) = delete;
  ChunkStore& operator=(const ChunkStore&) = delete;

  [[nodiscard]] uint64_t size() const { return size_; }
  [[nodiscard]] uint64_t n_chunks() const { return (size_ + kChunkBytes - 1) / kChunkBytes; }
  [[nodiscard]] uint64_t chunk_bytes(uint64_t chunk) const;
  [[nodiscard]] bool has(uint64_t chunk) const;

  // Drops all chunks, or one.
  void clear();
  void drop(uint64_t chunk);

  // Reads a part of a chunk for which has() is true. The first read of a chunk verifies all of it.
  // Errors: kCorrupt; the chunk was damaged and has been dropped.
  [[nodiscard]] Status read(uint64_t chunk, uint64_t offset, std::span<uint8_t> out);

  // Keeps other processes from fetching the same chunk. Null when `give_up` returned true.
  class Lock;
  [[nodiscard]] std::unique_ptr<Lock> lock(uint64_t chunk, const std::function<bool()>& give_up);

  // Writes one chunk from start to end. The chunk exists once commit() has succeeded.
  class Writer {
   public:
    Writer(ChunkStore* store, uint64_t chunk) : store_(store), chunk_(chunk) {}
    [[nodiscard]] bool append(std::span<const uint8_t> bytes);
    [[nodiscard]] Status commit();

   private:
    ChunkStore* store_;
    uint64_t chunk_;
    uint64_t written_ = 0;
    uint32_t checksum_ = 0;
    int error_ = 0;
  };

  class Lock {
   public:
    Lock(const platform::File& meta, uint64_t chunk) : meta_(meta), chunk_(chunk) {}
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    const platform::File& meta_;
    uint64_t chunk_;
  };

 private:
  struct Record {
    uint32_t checksum;
    uint32_t mark;
  };
  ChunkStore(platform::File meta, platform::File data, uint64_t size, std::string base = {});
  [[nodiscard]] Status check(uint64_t chunk);
  [[nodiscard]] bool read_record(uint64_t chunk, Record* record) const;
  void set_checked(uint64_t chunk, bool value);
  [[nodiscard]] bool is_checked(uint64_t chunk);

  const platform::File meta_;
  const platform::File data_;
  const uint64_t size_;
  const std::string base_;  // path without extension; empty: not in a cache directory
  std::mutex mutex_;
  std::vector<bool> checked_;  // chunks whose checksum this process has verified
};

// All cached files that one address loads: a file, the parts of a split model, or the files of a
// directory.
struct CacheEntry {
  std::string url;            // without secrets
  uint64_t size = 0;          // of all its files, in bytes
  uint64_t stored_bytes = 0;  // of these, the cached ones
  int64_t used = 0;           // seconds since 1970
  bool complete = false;
  std::vector<std::string> bases;  // paths of the files without extension, the largest file first
};

// Lists the entries, most recently used first. Empty if the directory does not exist.
[[nodiscard]] std::vector<CacheEntry> list_cache(const std::string& dir);
// Deletes all versions of an address's files. False when there were none. Errors: kCacheLocked
// while they are in use.
[[nodiscard]] Result<bool> delete_cached(const std::string& dir, const std::string& url);
// Deletes the least recently used entries until at most `max_bytes` are stored. Entries in use
// stay. Returns the addresses of the deleted ones.
[[nodiscard]] std::vector<std::string> evict_cache(const std::string& dir, uint64_t max_bytes);

}  // namespace sluice::io

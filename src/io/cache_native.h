// The chunk store: a remote file's bytes on disk, 4 MB at a time, each with a checksum.
// Two files: KEY.data (sparse, as long as the remote file) and KEY.meta (a header that names the
// remote file, then one record per chunk: checksum and mark). A record is written after its data,
// so a crash at any moment costs at most the chunk under way; a checksum that does not match makes
// a chunk missing again, so nothing needs fsync. Several processes share an entry: the entry holds
// a shared lock, a chunk being fetched the lock of a byte.
// KEY is made of the address (without what is secret in it) and of what identifies the version on
// the server: versions never mix, and the others go only once the first chunk of a new one is
// there.
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

  // Opens or creates the entry of (url, version, size) in `dir`, which is created when absent. As
  // soon as it holds the first chunk, other versions of the url that nobody uses are removed.
  // Errors: kIo.
  [[nodiscard]] static Result<std::unique_ptr<ChunkStore>> open(const std::string& dir,
                                                                const std::string& url,
                                                                const std::string& version,
                                                                uint64_t size);
  // The first bytes, at most `most`, of what is there of `url`, in this version if it is among the
  // versions; `same` then says so. Nothing when no version is there, empty when its beginning is
  // not.
  [[nodiscard]] static std::optional<std::vector<uint8_t>> beginning(const std::string& dir,
                                                                     const std::string& url,
                                                                     const std::string& version,
                                                                     uint64_t size, size_t most,
                                                                     bool* same);
  // The entry of whatever version of `url` is there entirely; kNotFound when there is none.
  [[nodiscard]] static Result<std::unique_ptr<ChunkStore>> open_complete(const std::string& dir,
                                                                         const std::string& url);
  // Without a name: lives as long as the object.
  [[nodiscard]] static Result<std::unique_ptr<ChunkStore>> open_temporary(uint64_t size);
  ChunkStore(const ChunkStore&) = delete;
  ChunkStore& operator=(const ChunkStore&) = delete;

  [[nodiscard]] uint64_t size() const { return size_; }
  [[nodiscard]] uint64_t n_chunks() const { return (size_ + kChunkBytes - 1) / kChunkBytes; }
  [[nodiscard]] uint64_t chunk_bytes(uint64_t chunk) const;
  [[nodiscard]] bool has(uint64_t chunk) const;

  // Forgets all chunks, or one.
  void clear();
  void drop(uint64_t chunk);

  // Reads a part of a chunk that has() says is there. The first read of a chunk checks all of it.
  // kCorrupt: it was not intact and has been dropped.
  [[nodiscard]] Status read(uint64_t chunk, uint64_t offset, std::span<uint8_t> out);

  // Keeps other processes from fetching the same chunk. False when `give_up` said so.
  class Lock;
  [[nodiscard]] std::unique_ptr<Lock> lock(uint64_t chunk, const std::function<bool()>& give_up);

  // Writes one chunk front to back; it exists once commit() has succeeded.
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
  const std::string base_;  // path without the endings; empty: not in a cache directory
  std::mutex mutex_;
  std::vector<bool> checked_;  // chunks whose checksum this process has seen to match
};

// What a cache directory holds of what one address loads: a file, the parts of a split model, the
// files of a directory.
struct CacheEntry {
  std::string url;            // without secrets
  uint64_t size = 0;          // of its files, in bytes
  uint64_t stored_bytes = 0;  // of them that are there
  int64_t used = 0;           // seconds since 1970
  bool complete = false;
  std::vector<std::string> bases;  // paths of the files without their endings, the largest first
};

// The entry used last first. A directory that is not there has none.
[[nodiscard]] std::vector<CacheEntry> list_cache(const std::string& dir);
// Deletes what an address loads, in every version; false when there was nothing. Errors:
// kCacheLocked while it is in use.
[[nodiscard]] Result<bool> delete_cached(const std::string& dir, const std::string& url);
// Deletes the entries used longest ago, but none that is in use, until at most `max_bytes` are
// stored; returns their addresses.
[[nodiscard]] std::vector<std::string> evict_cache(const std::string& dir, uint64_t max_bytes);

}  // namespace sluice::io

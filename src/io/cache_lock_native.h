// Lock files of the model cache. Node has no file locks of the operating system, so a lock is a
// file that its holder creates, refreshes and deletes. It has the holder's process and machine: the
// lock of a dead process, or one that is not refreshed, does not count. No byte of the cache
// depends on a lock. They keep two processes from fetching the same bytes, and an entry in use from
// being deleted. docs/model-cache.md is the specification.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"

namespace sluice::io {

// Says that this process uses an entry. A thread refreshes all of them.
class UseLock {
 public:
  explicit UseLock(const std::string& entry);  // a failure is ignored: the disk may be read-only
  ~UseLock();
  UseLock(const UseLock&) = delete;
  UseLock& operator=(const UseLock&) = delete;

 private:
  std::string path_;
};

// Whether any process uses the entry.
[[nodiscard]] bool is_in_use(const std::string& entry);

// Says that this process fetches a block of an entry. refresh() when bytes have arrived.
class BlockLock {
 public:
  // Null: another holder has it.
  [[nodiscard]] static std::unique_ptr<BlockLock> try_take(const std::string& entry,
                                                           uint64_t block);
  ~BlockLock();
  BlockLock(const BlockLock&) = delete;
  BlockLock& operator=(const BlockLock&) = delete;
  void refresh();

 private:
  explicit BlockLock(std::string path);
  std::string path_;
  double refreshed_ms_;
};

// A new, empty name of the kind that clean-up deletes: for entries in the making or being deleted.
[[nodiscard]] std::string temporary_name();

}  // namespace sluice::io

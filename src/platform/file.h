// Files that several threads read and write at positions of their own, and the few questions about
// paths that the engine has. Paths are UTF-8. What fails leaves its reason in errno.
// Reads are never memory mappings: a page fault on a truncated file is a signal instead of an
// error, and mapped pages would count against nobody's budget.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace sluice::platform {

enum class Access : uint8_t {
  kRead,
  kReadWrite,
  kCreate,     // read and write; made where it is not there
  kCreateNew,  // write; fails where it is there
};

enum class Kind : uint8_t { kFile, kDirectory, kOther };

struct FileInfo {
  Kind kind = Kind::kOther;
  uint64_t size = 0;
  int64_t modified = 0;  // seconds since 1970
};

enum class LockKind : uint8_t { kShared, kExclusive };

class File {
 public:
  File() = default;
  ~File();
  File(File&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  // Not valid() on failure. A pipe without a writer is opened without waiting for one.
  [[nodiscard]] static File open(const std::string& path, Access access);
  // Without a name, readable by this user alone: gone with this object, or with the process.
  [[nodiscard]] static File temporary(const std::string& directory);

  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  [[nodiscard]] bool info(FileInfo* out) const;
  // Bytes that were read: fewer than `n` only at the file's end. -1: failed.
  [[nodiscard]] int64_t read_at(uint64_t offset, void* out, size_t n) const;
  [[nodiscard]] bool write_at(uint64_t offset, const void* bytes, size_t n) const;
  [[nodiscard]] bool resize(uint64_t size) const;
  void touch() const;

  // Hints: the range will be read soon; it is to leave the system's cache (length 0: all of it).
  void will_need(uint64_t offset, uint64_t length) const;
  void drop_cached(uint64_t offset, uint64_t length) const;

  // Locks between processes (and between two File objects of one), which last until the object is
  // closed or takes another one. False: held elsewhere. Locks of single bytes exclude each other
  // only, and may lie past the file's end; a file system without locks stops nobody.
  [[nodiscard]] bool try_lock(LockKind kind) const;
  void wait_lock(LockKind kind) const;
  [[nodiscard]] bool try_lock_byte(uint64_t at) const;
  void unlock_byte(uint64_t at) const;

  // Gives the file to a stream of bytes as they are, "rb" or "wb"; null on failure.
  [[nodiscard]] std::FILE* to_stream(const char* mode = "wb") &&;

 private:
  explicit File(int fd) : fd_(fd) {}
  int fd_ = -1;
};

// Until what was written to the stream is on the disk.
[[nodiscard]] bool sync(std::FILE* stream);

// The same path with '/' alone between its parts, where the system knows another separator too.
[[nodiscard]] std::string with_slashes(std::string path);
[[nodiscard]] bool is_directory(const std::string& path);
// With those above it; true where it is there already.
[[nodiscard]] bool make_directories(const std::string& path);
// Names of what lies in a directory; none where it cannot be read.
[[nodiscard]] std::vector<std::string> names_in(const std::string& directory);
bool remove_file(const std::string& path);
// Takes the place of what has the name `to`, at once for whoever opens it.
[[nodiscard]] bool rename_file(const std::string& from, const std::string& to);
// Room for this user's files in the file system of `directory`; false where it is not known.
[[nodiscard]] bool free_bytes(const std::string& directory, uint64_t* out);
// $TMPDIR or the system's place for files that may be large.
[[nodiscard]] std::string temporary_directory();

}  // namespace sluice::platform

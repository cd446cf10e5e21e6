// Files with positioned reads and writes, which several threads may use at once, and a few
// functions on paths. Paths are UTF-8. Failures set errno. Files are never memory-mapped. A page
// fault on a truncated file would be a signal instead of an error, and mapped pages would not count
// against the memory budget.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace sluice::platform {

enum class Access : uint8_t {
  kRead,
  kReadWrite,
  kCreate,     // read and write; creates a missing file
  kCreateNew,  // write; fails if the file exists
};

enum class Kind : uint8_t { kFile, kDirectory, kOther };

struct FileInfo {
  Kind kind = Kind::kOther;
  uint64_t size = 0;
  int64_t modified = 0;  // seconds since 1970
};

enum class LockKind : uint8_t { kShared, kExclusive };

// Direct I/O: offsets, lengths and addresses are multiples of this.
inline constexpr size_t kDirectBlock = 4096;

class File {
 public:
  File() = default;
  ~File();
  File(File&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  // Not valid() on failure. Opening a pipe does not wait for a writer.
  [[nodiscard]] static File open(const std::string& path, Access access);
  // The same file for read_direct() only, which bypasses the page cache (direct I/O). Not valid()
  // where the system or the file system has none.
  [[nodiscard]] File open_direct() const;
  // An unnamed file that only this user can read. It is deleted with this object or the process.
  [[nodiscard]] static File temporary(const std::string& directory);

  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  [[nodiscard]] bool info(FileInfo* out) const;
  // Returns the number of bytes read, fewer than `n` only at the end of the file, or -1 on failure.
  [[nodiscard]] int64_t read_at(uint64_t offset, void* out, size_t n) const;
  // The same for a file of open_direct(): all three are multiples of kDirectBlock.
  [[nodiscard]] int64_t read_direct(uint64_t offset, void* out, size_t n) const;
  [[nodiscard]] bool write_at(uint64_t offset, const void* bytes, size_t n) const;
  [[nodiscard]] bool resize(uint64_t size) const;
  void touch() const;

  // Hints to the page cache. will_need: the range will be read soon. drop_cached: evict the range
  // (length 0: the whole file).
  void will_need(uint64_t offset, uint64_t length) const;
  void drop_cached(uint64_t offset, uint64_t length) const;

  // Locks between processes, and between File objects of one process. A lock lasts until the object
  // is closed or takes another lock. False: another holder has it. Byte locks exclude only each
  // other, and may lie past the end of the file. On a file system without locks all calls succeed.
  [[nodiscard]] bool try_lock(LockKind kind) const;
  void wait_lock(LockKind kind) const;
  [[nodiscard]] bool try_lock_byte(uint64_t at) const;
  void unlock_byte(uint64_t at) const;

  // Turns the file into a binary stream, "rb" or "wb"; null on failure.
  [[nodiscard]] std::FILE* to_stream(const char* mode = "wb") &&;

 private:
  explicit File(int fd) : fd_(fd) {}
  int fd_ = -1;
};

// Waits until all data written to the stream is on disk.
[[nodiscard]] bool sync(std::FILE* stream);

// The path with '/' as its only separator; Windows has two.
[[nodiscard]] std::string with_slashes(std::string path);
[[nodiscard]] bool is_directory(const std::string& path);
// Also creates missing parents. True if the directory exists already.
[[nodiscard]] bool make_directories(const std::string& path);
// Names of a directory's entries; empty if it cannot be read.
[[nodiscard]] std::vector<std::string> names_in(const std::string& directory);
bool remove_file(const std::string& path);
// False: it is not empty.
bool remove_directory(const std::string& path);
// Atomically replaces the file named `to`, if there is one. A directory moves only to a name that
// does not exist.
[[nodiscard]] bool rename_file(const std::string& from, const std::string& to);
// Free bytes for this user in the file system of `directory`; false if unknown.
[[nodiscard]] bool free_bytes(const std::string& directory, uint64_t* out);
// $TMPDIR, or the system's directory for large temporary files.
[[nodiscard]] std::string temporary_directory();

}  // namespace sluice::platform

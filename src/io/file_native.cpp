// A local file read by pread: positional, so that threads share one descriptor without a lock.
// Not mmap: a page fault on a truncated file is a signal instead of an error, and mapped pages
// would count against nobody's budget.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "io/byte_source.h"

namespace sluice::io {

namespace {

class FileSource final : public ByteSource {
 public:
  FileSource(int fd, uint64_t size, std::string path)
      : fd_(fd), size_(size), path_(std::move(path)) {}
  ~FileSource() override { ::close(fd_); }
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  [[nodiscard]] uint64_t size() const override { return size_; }

  [[nodiscard]] Status read(uint64_t offset, std::span<uint8_t> out) override {
    if (offset > size_ || out.size() > size_ - offset) return past_end(offset);
    while (!out.empty()) {
      const ssize_t n = ::pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        return error(Code::kIo, "reading %s failed: %s", path_.c_str(), std::strerror(errno));
      }
      if (n == 0) return past_end(offset);  // the file became shorter
      offset += static_cast<uint64_t>(n);
      out = out.subspan(static_cast<size_t>(n));
    }
    return {};
  }

 private:
  [[nodiscard]] Status past_end(uint64_t offset) const {
    return error(Code::kTruncated, "%s ends before byte %llu", path_.c_str(),
                 static_cast<unsigned long long>(offset));
  }

  int fd_;
  uint64_t size_;
  std::string path_;
};

}  // namespace

Result<std::unique_ptr<ByteSource>> open_file(const std::string& path) {
  if (path.empty()) return error(Code::kInvalidArgument, "the file name is empty");
  // O_NONBLOCK: opening a pipe without a writer must not wait; it has no effect on files.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const Code code = errno == ENOENT || errno == ENOTDIR ? Code::kNotFound : Code::kIo;
    return error(code, "cannot open %s: %s", path.c_str(), std::strerror(errno));
  }
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return error(Code::kInvalidArgument, "%s is %s, not a file", path.c_str(),
                 S_ISDIR(info.st_mode) ? "a directory" : "a device or pipe");
  }
  return std::unique_ptr<ByteSource>(
      std::make_unique<FileSource>(fd, static_cast<uint64_t>(info.st_size), path));
}

}  // namespace sluice::io

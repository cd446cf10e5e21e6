// A local file read by pread: positional, so that threads share one descriptor without a lock.
// Not mmap: a page fault on a truncated file is a signal instead of an error, and mapped pages
// would count against nobody's budget.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <vector>

#include "base/clock.h"
#include "io/byte_source.h"

namespace sluice::io {

namespace {

class FileSource final : public ByteSource {
 public:
  FileSource(int fd, uint64_t size, std::string path, bool past_cache)
      : fd_(fd), size_(size), path_(std::move(path)), past_cache_(past_cache) {
    if (past_cache_) drop(0, 0);
  }
  ~FileSource() override { ::close(fd_); }
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  [[nodiscard]] uint64_t size() const override { return size_; }

  [[nodiscard]] Status read(uint64_t offset, std::span<uint8_t> out) override {
    if (offset > size_ || out.size() > size_ - offset) return past_end(offset);
    const uint64_t start = offset, length = out.size();
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
    if (past_cache_) drop(start, length);
    return {};
  }

  void will_need([[maybe_unused]] uint64_t offset, [[maybe_unused]] uint64_t length) override {
#if defined(POSIX_FADV_WILLNEED)
    constexpr uint64_t kStep = 512 << 10;  // Linux cuts longer ones off
    for (uint64_t at = offset; at < offset + length; at += kStep) {
      ::posix_fadvise(fd_, static_cast<off_t>(at),
                      static_cast<off_t>(std::min(kStep, offset + length - at)),
                      POSIX_FADV_WILLNEED);
    }
#endif
  }

 private:
  [[nodiscard]] Status past_end(uint64_t offset) const {
    return error(Code::kTruncated, "%s ends before byte %llu", path_.c_str(),
                 static_cast<unsigned long long>(offset));
  }

  void drop(uint64_t offset, uint64_t length) const {
#if defined(POSIX_FADV_DONTNEED)
    ::posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(length),
                    POSIX_FADV_DONTNEED);
#endif
  }

  int fd_;
  uint64_t size_;
  std::string path_;
  bool past_cache_;
};

}  // namespace

Result<std::unique_ptr<ByteSource>> open_file(const std::string& path, const OpenOptions& options) {
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
  return std::unique_ptr<ByteSource>(std::make_unique<FileSource>(
      fd, static_cast<uint64_t>(info.st_size), path, options.past_cache));
}

namespace {

double thread_cpu_ms() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) / 1e6;
}

}  // namespace

Result<ReadRate> measure_reads(ByteSource& source, uint64_t offset, uint64_t bytes,
                               double most_ms) {
  constexpr uint64_t kRead = 4 << 20;
  std::vector<uint8_t> chunk(kRead);
  const uint64_t end = std::min(source.size(), offset + bytes);
  const double start = monotonic_ms(), cpu = thread_cpu_ms();
  double ms = 0;
  uint64_t at = offset;
  while (at < end && ms < most_ms) {
    const uint64_t n = std::min(kRead, end - at);
    SLUICE_RETURN_IF_ERROR(source.read(at, {chunk.data(), n}));
    at += n;
    ms = monotonic_ms() - start;
  }
  if (ms <= 0) return ReadRate{};
  return ReadRate{static_cast<double>(at - offset) * 1000 / ms,
                  std::min(1.0, (thread_cpu_ms() - cpu) / ms)};
}

}  // namespace sluice::io

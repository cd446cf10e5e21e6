// A local file as a ByteSource. Reads are positional, so threads share one file without a lock.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "io/byte_source.h"
#include "platform/file.h"
#include "platform/threads.h"

namespace sluice::io {

namespace {

class FileSource final : public ByteSource {
 public:
  FileSource(platform::File file, uint64_t size, std::string path, bool no_page_cache)
      : file_(std::move(file)), size_(size), path_(std::move(path)), no_page_cache_(no_page_cache) {
    if (no_page_cache_) file_.drop_cached(0, 0);
  }
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  [[nodiscard]] uint64_t size() const override { return size_; }

  [[nodiscard]] Status read(uint64_t offset, std::span<uint8_t> out) override {
    if (offset > size_ || out.size() > size_ - offset) return past_end(offset);
    const int64_t n = file_.read_at(offset, out.data(), out.size());
    if (n < 0) {
      return error(Code::kIo, "reading %s failed: %s", path_.c_str(), std::strerror(errno));
    }
    const auto got = static_cast<uint64_t>(n);
    if (got < out.size()) return past_end(offset + got);  // the file has been truncated
    if (no_page_cache_) drop(offset, out.size());
    return {};
  }

  void will_need(uint64_t offset, uint64_t length) override { file_.will_need(offset, length); }

 private:
  [[nodiscard]] Status past_end(uint64_t offset) const {
    return error(Code::kTruncated, "%s ends before byte %llu", path_.c_str(),
                 static_cast<unsigned long long>(offset));
  }

  /**
   * Linux keeps a folio (a run of pages that it has read ahead) unless the range contains all of
   * it. Small reads end within one, so what lies well behind a read is dropped once more.
   */
  void drop(uint64_t offset, uint64_t length) {
    constexpr uint64_t kReadAhead = 8 << 20;
    file_.drop_cached(offset, length);
    if (offset >= 2 * kReadAhead) file_.drop_cached(offset - 2 * kReadAhead, kReadAhead);
  }

  platform::File file_;
  uint64_t size_;
  std::string path_;
  bool no_page_cache_;
};

}  // namespace

Result<std::unique_ptr<ByteSource>> open_file(const std::string& path, const OpenOptions& options) {
  if (path.empty()) return error(Code::kInvalidArgument, "the file name is empty");
  platform::File file = platform::File::open(path, platform::Access::kRead);
  if (!file.valid()) {
    const Code code = errno == ENOENT || errno == ENOTDIR ? Code::kNotFound : Code::kIo;
    return error(code, "cannot open %s: %s", path.c_str(), std::strerror(errno));
  }
  platform::FileInfo info;
  if (!file.info(&info) || info.kind != platform::Kind::kFile) {
    return error(Code::kInvalidArgument, "%s is %s, not a file", path.c_str(),
                 info.kind == platform::Kind::kDirectory ? "a directory" : "a device or pipe");
  }
  return std::unique_ptr<ByteSource>(
      std::make_unique<FileSource>(std::move(file), info.size, path, options.no_page_cache));
}

Result<ReadRate> measure_reads(ByteSource& source, uint64_t offset, uint64_t bytes, double max_ms) {
  constexpr uint64_t kRead = 4 << 20;
  std::vector<uint8_t> chunk(kRead);
  const uint64_t end = std::min(source.size(), offset + bytes);
  const double start = monotonic_ms(), cpu = platform::thread_cpu_ms();
  double ms = 0;
  uint64_t at = offset;
  while (at < end && ms < max_ms) {
    const uint64_t n = std::min(kRead, end - at);
    SLUICE_RETURN_IF_ERROR(source.read(at, {chunk.data(), n}));
    at += n;
    ms = monotonic_ms() - start;
  }
  if (ms <= 0) return ReadRate{};
  return ReadRate{static_cast<double>(at - offset) * 1000 / ms,
                  std::min(1.0, (platform::thread_cpu_ms() - cpu) / ms)};
}

}  // namespace sluice::io

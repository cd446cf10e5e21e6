// A local file as a ByteSource. Reads are positional, so threads share one file without a lock.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "io/byte_source.h"
#include "io/direct_io_native.h"
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
    const ReadPart part{offset, out};
    return read_parts({&part, 1});
  }

  [[nodiscard]] Status read_parts(std::span<const ReadPart> parts) override {
    while (!parts.empty()) {
      size_t n = 1;
      if (buffers_ == nullptr) {
        SLUICE_RETURN_IF_ERROR(read_cached(parts[0].offset, parts[0].out));
      } else {
        n = neighbours(parts);
        SLUICE_RETURN_IF_ERROR(read_direct(parts.first(n)));
      }
      parts = parts.subspan(n);
    }
    return {};
  }

  [[nodiscard]] uint64_t place(uint64_t offset, uint64_t) override {
    return buffers_ != nullptr ? offset : kNoPlace;
  }

  [[nodiscard]] bool use_direct_io(std::shared_ptr<DirectBuffers> buffers) override {
    buffers_ = nullptr;
    if (buffers == nullptr) return false;
    direct_ = file_.open_direct();
    if (!direct_.valid()) return false;
    {  // some file systems refuse only the read
      const DirectBuffers::Use buffer(*buffers);
      if (direct_.read_direct(0, buffer.data(), platform::kDirectBlock) < 0) return false;
    }
    buffers_ = std::move(buffers);
    return true;
  }

  [[nodiscard]] SystemReads system_reads() const override { return {reads_, bytes_}; }

  void will_need(uint64_t offset, uint64_t length) override {
    if (buffers_ == nullptr) file_.will_need(offset, length);
  }

 private:
  // How many of the first parts are neighbours that fit a buffer; at least 1.
  [[nodiscard]] static size_t neighbours(std::span<const ReadPart> parts) {
    uint64_t bytes = parts[0].out.size();
    size_t n = 1;
    while (n < parts.size() && parts[n].offset == parts[0].offset + bytes &&
           bytes + parts[n].out.size() <= DirectBuffers::kBytes) {
      bytes += parts[n++].out.size();
    }
    return n;
  }

  [[nodiscard]] Status read_cached(uint64_t offset, std::span<uint8_t> out) {
    if (offset > size_ || out.size() > size_ - offset) return past_end(offset);
    const int64_t n = file_.read_at(offset, out.data(), out.size());
    if (n < 0) return failed();
    count(out.size());
    const auto got = static_cast<uint64_t>(n);
    if (got < out.size()) return past_end(offset + got);  // the file has been truncated
    if (no_page_cache_) drop(offset, out.size());
    return {};
  }

  // Reads neighbours at once, or one part that may be larger than a buffer.
  [[nodiscard]] Status read_direct(std::span<const ReadPart> parts) {
    constexpr uint64_t kBlock = platform::kDirectBlock;
    uint64_t at = parts[0].offset, length = 0;
    for (const ReadPart& part : parts) length += part.out.size();
    if (at > size_ || length > size_ - at) return past_end(at);
    const DirectBuffers::Use buffer(*buffers_);
    std::span<uint8_t> out = parts[0].out;
    for (const uint64_t end = at + length; at < end;) {
      const uint64_t n = std::min(end - at, DirectBuffers::kBytes);
      const uint64_t first = at / kBlock * kBlock;
      const uint64_t blocks = (at + n - first + kBlock - 1) / kBlock * kBlock;
      const int64_t got = direct_.read_direct(first, buffer.data(), static_cast<size_t>(blocks));
      if (got < 0) return failed();
      count(blocks);
      if (first + static_cast<uint64_t>(got) < at + n) {
        return past_end(first + static_cast<uint64_t>(got));
      }
      for (uint64_t done = 0; done < n;) {
        const size_t copied = static_cast<size_t>(std::min<uint64_t>(n - done, out.size()));
        std::memcpy(out.data(), buffer.data() + (at - first) + done, copied);
        done += copied;
        out = out.subspan(copied);
        while (out.empty() && parts.size() > 1) {
          parts = parts.subspan(1);
          out = parts[0].out;
        }
      }
      at += n;
    }
    return {};
  }

  void count(uint64_t bytes) {
    reads_.fetch_add(1, std::memory_order_relaxed);
    bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }

  [[nodiscard]] Status failed() const {
    return error(Code::kIo, "reading %s failed: %s", path_.c_str(), std::strerror(errno));
  }

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
  std::shared_ptr<DirectBuffers> buffers_;  // null: through the page cache
  platform::File direct_;
  std::atomic<uint64_t> reads_{0}, bytes_{0};
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

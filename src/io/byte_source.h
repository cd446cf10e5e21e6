// ByteSource: the interface through which native programs read a model. Reads are positional and
// thread-safe, so several ranges can be in flight. A read returns all requested bytes or an error.
// The browser has no ByteSource: its worker fills the same queue of reads by itself.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace sluice::io {

class DirectBuffers;

struct ReadPart {
  uint64_t offset = 0;
  std::span<uint8_t> out;
};

// Reads that a source asked the system for.
struct SystemReads {
  uint64_t count = 0, bytes = 0;
};

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Total length in bytes.
  [[nodiscard]] virtual uint64_t size() const = 0;
  // Fills all of `out` from `offset`. Errors: kIo, kNetwork, kHttpStatus, kTruncated, kAborted...
  [[nodiscard]] virtual Status read(uint64_t offset, std::span<uint8_t> out) = 0;
  // Reads several ranges. Those that place() shows to be neighbours may be one read of the file.
  [[nodiscard]] virtual Status read_parts(std::span<const ReadPart> parts) {
    for (const ReadPart& part : parts) SLUICE_RETURN_IF_ERROR(read(part.offset, part.out));
    return {};
  }
  // Where a range is in its file, if neighbours are worth reading together; else kNoPlace.
  static constexpr uint64_t kNoPlace = UINT64_MAX;
  [[nodiscard]] virtual uint64_t place(uint64_t /*offset*/, uint64_t /*length*/) {
    return kNoPlace;
  }
  // From now on, reads the files without the page cache (direct_io_native.h), where the file system
  // can; null: with it again. Call before any other thread reads. True: no longer with it.
  [[nodiscard]] virtual bool use_direct_io(std::shared_ptr<DirectBuffers> /*buffers*/) {
    return false;
  }
  // So far, of local files.
  [[nodiscard]] virtual SystemReads system_reads() const { return {}; }
  // Hint that a range will be read soon, so that the system can prefetch it. Returns at once.
  virtual void will_need(uint64_t /*offset*/, uint64_t /*length*/) {}
  // Bytes read so far over the network, and from a local cache.
  [[nodiscard]] virtual uint64_t bytes_fetched() const { return 0; }
  [[nodiscard]] virtual uint64_t bytes_from_cache() const { return 0; }
  // Nanoseconds spent decompressing, over all threads.
  [[nodiscard]] virtual uint64_t decompress_ns() const { return 0; }
  // Bytes that no local cache has.
  [[nodiscard]] virtual uint64_t bytes_missing() const { return 0; }
  // The server cannot be reached, and a complete cached copy is read.
  [[nodiscard]] virtual bool offline() const { return false; }
  // The range is damaged: drops local copies, so that the next read fetches it from its origin.
  [[nodiscard]] virtual Status refresh(uint64_t /*offset*/, uint64_t /*length*/) { return {}; }
  // From now on, reads may return bytes before their checksum is verified: it is computed as they
  // are read, and compared by run_deferred_checks(). Until then the caller uses none of them.
  virtual void defer_checks() {}
  // Ends that. Errors: kCorrupt; those of read(), for what the sums still lack.
  [[nodiscard]] virtual Status run_deferred_checks() { return {}; }
  // Makes pending reads of other threads return kAborted within 100 ms.
  virtual void abort() {}
};

// Timeouts and retries. The defaults suit a distant hub; tests shorten them.
struct HttpOptions {
  int connect_timeout_ms = 10'000;
  int stall_timeout_ms = 15'000;  // ends a transfer that is slower than 512 B/s for so long
  int open_attempts = 3;          // for the request that opens a file
  int attempts = 8;               // in a row without progress, for later requests
  int backoff_ms = 250;           // doubles with each attempt, with jitter
  int max_backoff_ms = 8'000;
  int refused_ms = 3'000;                   // waits in all for a server that refuses connections
  int max_retry_after_ms = 60'000;          // a longer Retry-After is an error
  int max_parallel = 6;                     // requests in flight; further readers wait
  uint64_t max_whole_bytes = 256ull << 30;  // largest file from a server without range requests
};

// What a server may ask for. It is never printed, stored or part of a cache key. No redirect takes
// it to another server. credentials_native.h checks it.
struct Credentials {
  std::vector<std::string> headers;  // "Name: value", for the server of `model`
  // The model's URL or hf: reference: its adapters and draft models may be on other servers. Empty:
  // what is opened is the model.
  std::string model;
  std::string token;                           // of Hugging Face, for the server of `hub` only
  std::string hub = "https://huggingface.co";  // or a mirror
};

enum class DirectIo : uint8_t {
  kAuto,  // if a local file exceeds the memory that is available, and reads are faster so
  kOff,
  kOn,  // where the file system can
};

struct OpenOptions {
  std::string cache_dir;  // for URLs: the directory of the model cache; empty: no cache
  HttpOptions http;
  Credentials credentials;
  // For a QSF file without a tokenizer: a tokenizer.json, or a model with the same tokenizer.
  std::string tokenizer;
  // For measurements: drops what was read of a file from the page cache, as if the file were larger
  // than the machine's memory.
  bool no_page_cache = false;
  // Whether weights are read without the page cache.
  DirectIo direct_io = DirectIo::kAuto;
  bool join_reads = true;  // with direct I/O: neighbours in a file are one read
  // Called from any thread when something degrades without failing, such as a full disk or a server
  // that does not answer.
  std::function<void(const std::string&)> on_warning;
};

// A small text from a server, such as a list of files, and the address of its next page.
struct RemoteText {
  std::string text;
  std::string next;  // from the Link header, if it is on the same server; else empty
  int status = 200;  // of HTTP; `text` is empty unless it is 200
};

// Fetches a text of at most `max_bytes`. HTTP statuses that say that it is not there, or not for
// the caller, are in the result. Errors: kHttpStatus, kNetwork, kInvalidArgument.
[[nodiscard]] Result<RemoteText> fetch_text(const std::string& url, size_t max_bytes,
                                            const OpenOptions& options);
// A complete model in the cache: its address without secrets, and the bytes of all its files.
struct CachedModel {
  std::string url;
  uint64_t size = 0;
};
[[nodiscard]] std::vector<CachedModel> cached_models(const std::string& cache_dir);
// Opens a path or an http(s) URL.
[[nodiscard]] Result<std::unique_ptr<ByteSource>> open_source(const std::string& path_or_url,
                                                              const OpenOptions& options = {});
[[nodiscard]] Result<std::unique_ptr<ByteSource>> open_http(const std::string& url,
                                                            const OpenOptions& options = {});
[[nodiscard]] Result<std::unique_ptr<ByteSource>> open_file(const std::string& path,
                                                            const OpenOptions& options = {});
struct ReadRate {
  double bytes_per_second = 0;
  double busy = 0;  // share of the time that this thread used the processor
};
// Measures plain reads of 4 MB each from `offset` on: `bytes` in total, to the end of the source,
// or until `max_ms` have passed.
[[nodiscard]] Result<ReadRate> measure_reads(ByteSource& source, uint64_t offset, uint64_t bytes,
                                             double max_ms = 1e9);
// A source over memory that the caller keeps alive.
[[nodiscard]] std::unique_ptr<ByteSource> open_memory(std::span<const uint8_t> bytes);

}  // namespace sluice::io

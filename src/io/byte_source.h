// ByteSource: where a native driver's bytes come from. Reads are positional and thread-safe, so
// that several ranges can be in flight; a source never returns fewer bytes than asked for without
// an error. The browser has no ByteSource: its worker feeds the same fill queue by itself.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"

namespace sluice::io {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Total length in bytes.
  [[nodiscard]] virtual uint64_t size() const = 0;
  // Fills all of `out` from `offset`. Errors: kIo, kNetwork, kHttpStatus, kTruncated, kAborted...
  [[nodiscard]] virtual Status read(uint64_t offset, std::span<uint8_t> out) = 0;
  // A range that will be read soon: the system may fetch it meanwhile. Returns at once.
  virtual void will_need(uint64_t /*offset*/, uint64_t /*length*/) {}
  // Bytes that came over the network and from a local store so far.
  [[nodiscard]] virtual uint64_t bytes_fetched() const { return 0; }
  [[nodiscard]] virtual uint64_t bytes_from_store() const { return 0; }
  // Bytes that no local store has.
  [[nodiscard]] virtual uint64_t bytes_missing() const { return 0; }
  // These bytes are not what they should be: local copies of them go, and the next read of them is
  // answered by where they came from.
  [[nodiscard]] virtual Status refresh(uint64_t /*offset*/, uint64_t /*length*/) { return {}; }
  // Makes a read that is under way in another thread return kAborted soon (within 100 ms).
  virtual void abort() {}
};

// Patience with servers. The defaults suit a hub far away; tests make them short.
struct HttpOptions {
  int connect_timeout_ms = 10'000;
  int stall_timeout_ms = 15'000;  // a transfer slower than 512 B/s for so long is cut
  int open_attempts = 3;          // for the first question, when nobody waits for much
  int attempts = 8;               // in a row without progress, later
  int backoff_ms = 250;           // doubles with each attempt, with jitter
  int max_backoff_ms = 8'000;
  int max_retry_after_ms = 60'000;          // a server that asks for more patience is an error
  int max_parallel = 6;                     // requests in flight; more readers wait their turn
  uint64_t max_whole_bytes = 256ull << 30;  // largest file taken whole from a server without ranges
};

struct OpenOptions {
  std::string cache_dir;  // for URLs: where fetched chunks are kept; empty: no cache
  HttpOptions http;
  // For measurements: drops what was read of a file from the page cache, as if the file were larger
  // than the machine's memory.
  bool past_cache = false;
  // Told once, from any thread, what degraded without failing (a full disk: network only).
  std::function<void(const std::string&)> on_warning;
};

// Opens a path or an http(s) URL.
[[nodiscard]] Result<std::unique_ptr<ByteSource>> open_source(const std::string& path_or_url,
                                                              const OpenOptions& options = {});
[[nodiscard]] Result<std::unique_ptr<ByteSource>> open_http(const std::string& url,
                                                            const OpenOptions& options = {});
[[nodiscard]] Result<std::unique_ptr<ByteSource>> open_file(const std::string& path,
                                                            const OpenOptions& options = {});
struct ReadRate {
  double bytes_per_second = 0;
  double busy = 0;  // share of the time that this thread's processor was at work
};
// Plain reads of 4 MB from `offset` on, `bytes` of them or to the end of the source, or until
// `max_ms` have passed.
[[nodiscard]] Result<ReadRate> measure_reads(ByteSource& source, uint64_t offset, uint64_t bytes,
                                             double max_ms = 1e9);
// A view of memory that the caller keeps alive.
[[nodiscard]] std::unique_ptr<ByteSource> open_memory(std::span<const uint8_t> bytes);

}  // namespace sluice::io

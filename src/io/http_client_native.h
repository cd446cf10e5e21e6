// One remote file, asked for by ranges. A fetch is patient: it resumes at the byte reached after a
// cut, a stall or a busy server, with backoff and jitter, and it is suspicious: each answer must be
// the range that was asked for, of the file that was opened. Redirect targets are remembered,
// because hubs redirect every request, and dropped as soon as they refuse (signed URLs expire).
// Each request has a curl multi handle of its own, so that abort() can wake it at once; handles are
// pooled, so that connections are kept alive.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "io/byte_source.h"

namespace sluice::io {

// No model is longer; what claims to be is refused before any table is made of it.
constexpr uint64_t kMaxFileBytes = 1ull << 42;

// What identifies a file on a server; a change of any of these is a different file.
struct RemoteFile {
  uint64_t size = 0;
  std::string etag;
  std::string last_modified;
  bool ranges = false;  // the server serves byte ranges
};

class HttpClient {
 public:
  // Takes body bytes in order; false when they cannot be kept, which ends the fetch with kIo.
  using Sink = std::function<bool(std::span<const uint8_t>)>;

  HttpClient(std::string url, const HttpOptions& options);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Asks what the file is. Fills remote().
  [[nodiscard]] Status open();
  [[nodiscard]] const RemoteFile& remote() const { return remote_; }

  // All reads that carry an older epoch than the current one end with kAborted.
  [[nodiscard]] uint64_t epoch() const { return epoch_.load(std::memory_order_acquire); }
  void abort();

  // Hands bytes [offset, offset + length) to the sink. Errors: kHttpStatus, kNetwork, kAborted,
  // kSourceChanged, kNoRangeSupport, kIo.
  [[nodiscard]] Status fetch(uint64_t offset, uint64_t length, uint64_t epoch, const Sink& sink);
  // The whole file from a server without ranges: after a cut the beginning is read again.
  [[nodiscard]] Status fetch_whole(uint64_t epoch, const Sink& sink);

  // Sleeps; false when aborted meanwhile.
  [[nodiscard]] bool wait(int ms, uint64_t epoch);

  [[nodiscard]] uint64_t bytes_fetched() const { return bytes_fetched_.load(); }
  // The URL without user, password and query, for messages.
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  struct Connection;
  struct Transfer;
  struct Callbacks;
  struct Backoff;

  [[nodiscard]] Status transfer_with_retries(Transfer* t);
  void attempt(Transfer* t);
  void run(Connection* c, Transfer* t);
  void setup(Connection* c, Transfer* t);
  void conclude(int curl_code, const char* detail, Transfer* t);
  void check_response(Transfer* t);
  void check_probe(Transfer* t);
  void check_partial(Transfer* t);
  void check_error_status(Transfer* t);
  [[nodiscard]] bool same_file(const Transfer& t) const;
  [[nodiscard]] Connection* acquire(uint64_t epoch);
  void release(Connection* c);
  [[nodiscard]] std::string current_url(bool* redirected);

  const std::string url_;
  const std::string name_;
  const HttpOptions options_;
  RemoteFile remote_;
  bool opened_ = false;
  std::atomic<uint64_t> epoch_{1};
  std::atomic<uint64_t> bytes_fetched_{0};

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string redirect_;  // where the last redirect led; empty: ask the original
  std::vector<std::unique_ptr<Connection>> connections_;
  uint64_t jitter_;
};

}  // namespace sluice::io

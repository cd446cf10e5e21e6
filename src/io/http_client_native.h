// Reads one remote file by range requests. After a lost connection, a stall or a busy server, a
// fetch resumes at the byte reached, with backoff and jitter. Each response is validated: it must
// be the requested range of the file that was opened. Redirect targets are remembered, because hubs
// redirect every request. They are dropped as soon as they fail, because signed URLs expire.
// Redirects are followed here and not by libcurl, which would take the caller's headers to other
// servers. Each request has its own curl multi handle, so that abort() can wake it at once. Handles
// are pooled, so connections stay alive.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "io/byte_source.h"

namespace sluice::io {

// The largest accepted file. A larger one is an error before any table is allocated for it.
constexpr uint64_t kMaxFileBytes = 1ull << 42;

// What identifies a file on a server. If any of these changes, it is a different file.
struct RemoteFile {
  uint64_t size = 0;
  std::string etag;
  std::string last_modified;
  bool ranges = false;  // the server supports range requests
};

class HttpClient {
 public:
  // Receives body bytes in order. False, when they cannot be stored, ends the fetch with kIo.
  using Sink = std::function<bool(std::span<const uint8_t>)>;

  HttpClient(std::string url, OpenOptions options);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Requests the file's size, version and first bytes. Fills remote(). Errors: fetch()'s, and
  // kNotGguf for a web page.
  [[nodiscard]] Status open();
  [[nodiscard]] const RemoteFile& remote() const { return remote_; }
  // Fetches a text instead of opening a file. Errors: those of fetch().
  [[nodiscard]] Result<RemoteText> fetch_text(size_t max_bytes);

  // abort() begins a new epoch. Fetches with an older epoch end with kAborted.
  [[nodiscard]] uint64_t epoch() const { return epoch_.load(std::memory_order_acquire); }
  void abort();

  // Passes bytes [offset, offset + length) to the sink. Errors: kHttpStatus, kNetwork, kAborted,
  // kSourceChanged, kNoRangeSupport, kIo.
  [[nodiscard]] Status fetch(uint64_t offset, uint64_t length, uint64_t epoch, const Sink& sink);
  // Fetches the whole file from a server without range requests. After a lost connection it starts
  // over and skips the bytes that it has.
  [[nodiscard]] Status fetch_whole(uint64_t epoch, const Sink& sink);

  // Sleeps. False when aborted meanwhile.
  [[nodiscard]] bool wait(int ms, uint64_t epoch);

  [[nodiscard]] uint64_t bytes_fetched() const { return bytes_fetched_.load(); }
  // The first bytes of the opened file, if they are known already. They tell whether a response
  // with another ETag is of the same file.
  void know_head(std::span<const uint8_t> head);

  // The URL without user, password and query, for messages.
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  struct Connection;
  struct Transfer;
  struct Callbacks;
  struct Backoff;

  [[nodiscard]] Status transfer_with_retries(Transfer* t);
  [[nodiscard]] int delay_ms(int failures);
  void tell_retry(const Transfer& t, int failures);
  void attempt(Transfer* t);
  void run(Connection* c, Transfer* t);
  [[nodiscard]] std::string run_once(Connection* c, Transfer* t, const std::string& url);
  void setup(Connection* c, Transfer* t, const std::string& url);
  void set_headers(Connection* c, const std::string& url);
  void conclude(int curl_code, const char* detail, Transfer* t);
  void check_response(Transfer* t);
  void check_probe(Transfer* t);
  void check_partial(Transfer* t);
  void check_error_status(Transfer* t);
  void ask_uncompressed(Transfer* t);
  [[nodiscard]] bool same_file(const Transfer& t) const;
  [[nodiscard]] bool may_be_alias(const Transfer& t) const;
  [[nodiscard]] bool is_alias(const Transfer& t);
  [[nodiscard]] bool same_sample(const std::string& etag, uint64_t offset, uint64_t epoch);
  [[nodiscard]] bool knows(const std::string& etag) const;
  [[nodiscard]] Connection* acquire(uint64_t epoch);
  void release(Connection* c);
  [[nodiscard]] std::string current_url(bool* redirected);

  const std::string url_;
  const std::string name_;
  // Scheme, host and port: of url_, of what the caller's headers are for, and of the hub.
  const std::string origin_, headers_origin_, hub_origin_;
  const OpenOptions all_;
  const HttpOptions& options_;
  RemoteFile remote_;
  bool opened_ = false;
  std::atomic<uint64_t> epoch_{1};
  std::atomic<uint64_t> bytes_fetched_{0};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string redirect_;  // target of the last redirect; empty: use the original URL
  std::vector<std::unique_ptr<Connection>> connections_;
  uint64_t jitter_;
  bool told_ = false;  // that the server is tried again; until it sends something
  // Other ETags of the same bytes, and checksums of samples by ETag and offset.
  std::vector<std::string> aliases_;
  std::map<std::pair<std::string, uint64_t>, uint32_t> samples_;
};

}  // namespace sluice::io

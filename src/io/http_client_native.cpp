// The HTTP client over libcurl: connections, a single attempt, and the retry loop.
#include "io/http_client_native.h"

#include <curl/curl.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <string_view>

#include "io/address.h"
#include "io/http_transfer_native.h"

namespace sluice::io {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxErrorBody = 64 << 10;     // read to keep the connection; longer ones are cut
constexpr uint64_t kProgressBytes = 64 << 10;  // fewer bytes of an attempt count as no progress
constexpr int kMaxRequests = 1000;             // of one fetch, even with progress

// The scheme://host[:port]/path of a URL, for messages.
std::string public_name(const std::string& url) {
  std::string name = public_address(url);
  for (char& c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return name.substr(0, 200);
}

// The delay of the Retry-After header, which is in seconds or a date.
int retry_after_ms(const HttpResponse& answer) {
  if (answer.retry_after.empty()) return 0;
  if (answer.retry_after_seconds) {
    return static_cast<int>(std::min<uint64_t>(*answer.retry_after_seconds, 1'000'000) * 1000);
  }
  const time_t when = curl_getdate(answer.retry_after.c_str(), nullptr);
  const time_t now = std::time(nullptr);
  if (when <= now) return 0;
  return static_cast<int>(std::min<int64_t>(when - now, 1'000'000) * 1000);
}

}  // namespace

struct HttpClient::Connection {
  CURLM* multi = nullptr;
  CURL* easy = nullptr;
  curl_slist* headers = nullptr;
  bool busy = false;

  Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() {
    if (easy != nullptr) curl_easy_cleanup(easy);
    if (multi != nullptr) curl_multi_cleanup(multi);
    curl_slist_free_all(headers);
  }
};

struct HttpClient::Callbacks {
  static size_t header(char* data, size_t size, size_t count, void* user) {
    auto* t = static_cast<Transfer*>(user);
    const std::string_view line(data, size * count);
    t->window_bytes += line.size();
    if (HttpResponse::begins(line)) t->begin_response();  // after a redirect or 100 Continue
    t->read_line(line);
    return line.size();
  }

  static size_t write(char* data, size_t size, size_t count, void* user) {
    auto* t = static_cast<Transfer*>(user);
    const size_t n = size * count;
    t->window_bytes += n;
    t->client->check_response(t);
    if (t->stop) return 0;
    if (!t->accepted) {  // the body of an error: read a little, to keep the connection alive
      t->body += n;
      return t->body > kMaxErrorBody ? 0 : n;
    }
    t->client->bytes_fetched_.fetch_add(n, std::memory_order_relaxed);
    std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(data), n);
    t->body += n;
    const uint64_t skipped = std::min<uint64_t>(t->skip, n);
    t->skip -= skipped;
    bytes = bytes.subspan(static_cast<size_t>(skipped));
    if (bytes.size() > t->length - t->done) {
      t->fail(error(Code::kNetwork, "%s sent more bytes than announced", t->client->name().c_str()),
              true);
      return 0;
    }
    if (!bytes.empty() && !(*t->sink)(bytes)) {
      t->fail(error(Code::kIo, "the bytes of %s could not be stored", t->client->name().c_str()),
              false);
      return 0;
    }
    t->done += bytes.size();
    return n;
  }
};

struct HttpClient::Backoff {
  int failures = 0;
  int requests = 0;
};

HttpClient::HttpClient(std::string url, const HttpOptions& options)
    : url_(std::move(url)), name_(public_name(url_)), options_(options) {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  jitter_ = static_cast<uint64_t>(Clock::now().time_since_epoch().count()) | 1;
}

HttpClient::~HttpClient() {
  abort();
}

void HttpClient::abort() {
  epoch_.fetch_add(1, std::memory_order_acq_rel);
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& c : connections_) {
    if (c->busy) curl_multi_wakeup(c->multi);
  }
  changed_.notify_all();
}

bool HttpClient::wait(int ms, uint64_t epoch) {
  std::unique_lock<std::mutex> lock(mutex_);
  return !changed_.wait_until(lock, Clock::now() + std::chrono::milliseconds(ms),
                              [&] { return epoch_.load() != epoch; });
}

HttpClient::Connection* HttpClient::acquire(uint64_t epoch) {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    if (epoch_.load() != epoch) return nullptr;
    for (const auto& c : connections_) {
      if (!c->busy) {
        c->busy = true;
        return c.get();
      }
    }
    if (connections_.size() < static_cast<size_t>(std::max(1, options_.max_parallel))) break;
    changed_.wait(lock);
  }
  auto c = std::make_unique<Connection>();
  c->multi = curl_multi_init();
  c->easy = curl_easy_init();
  c->headers = curl_slist_append(nullptr, "Accept-Encoding: identity");
  c->busy = true;
  connections_.push_back(std::move(c));
  return connections_.back().get();
}

void HttpClient::release(Connection* c) {
  const std::lock_guard<std::mutex> lock(mutex_);
  c->busy = false;
  changed_.notify_all();
}

std::string HttpClient::current_url(bool* redirected) {
  const std::lock_guard<std::mutex> lock(mutex_);
  *redirected = !redirect_.empty();
  return *redirected ? redirect_ : url_;
}

void HttpClient::setup(Connection* c, Transfer* t) {
  CURL* e = c->easy;
  curl_easy_reset(e);
  const std::string url = current_url(&t->redirected);
  const bool secure = lower(url_.substr(0, 6)) == "https:";
  curl_easy_setopt(e, CURLOPT_URL, url.c_str());
  curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(e, CURLOPT_REDIR_PROTOCOLS_STR, secure ? "https" : "http,https");
  curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(e, CURLOPT_MAXREDIRS, 10L);
  curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(e, CURLOPT_QUICK_EXIT, 1L);  // an abort does not wait for a DNS look-up
  // Parallel ranges use a connection each, not streams of one HTTP/2 connection.
  curl_easy_setopt(e, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options_.connect_timeout_ms));
  curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(e, CURLOPT_BUFFERSIZE, 256L << 10);
  curl_easy_setopt(e, CURLOPT_USERAGENT, "sluice");
  curl_easy_setopt(e, CURLOPT_HTTPHEADER, c->headers);
  curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, &Callbacks::header);
  curl_easy_setopt(e, CURLOPT_HEADERDATA, t);
  curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, &Callbacks::write);
  curl_easy_setopt(e, CURLOPT_WRITEDATA, t);
  if (t->kind == Transfer::Kind::kRange || t->kind == Transfer::Kind::kProbe) {
    const uint64_t first = t->offset + t->done;
    char range[64];
    std::snprintf(range, sizeof range, "%llu-%llu", ull(first), ull(t->offset + t->length - 1));
    curl_easy_setopt(e, CURLOPT_RANGE, range);
  }
}

void HttpClient::attempt(Transfer* t) {
  t->begin_attempt();
  Connection* c = acquire(t->epoch);
  if (c == nullptr) {
    t->fail(error(Code::kAborted, "the read of %s was aborted", name_.c_str()), false);
    return;
  }
  if (c->multi == nullptr || c->easy == nullptr) {
    t->fail(error(Code::kOutOfMemory, "libcurl could not start a request"), false);
  } else {
    run(c, t);
  }
  release(c);
}

// Runs one request to its end, and checks for abort() and stalls.
void HttpClient::run(Connection* c, Transfer* t) {
  char detail[CURL_ERROR_SIZE] = "";
  setup(c, t);
  curl_easy_setopt(c->easy, CURLOPT_ERRORBUFFER, detail);
  curl_multi_add_handle(c->multi, c->easy);
  const auto window = std::chrono::milliseconds(std::max(1, options_.stall_timeout_ms));
  const uint64_t least = std::max<uint64_t>(1, static_cast<uint64_t>(window.count()) * 512 / 1000);
  auto window_end = Clock::now() + window;
  int running = 1;
  while (true) {
    const CURLMcode code = curl_multi_perform(c->multi, &running);
    if (running == 0 || code != CURLM_OK) break;
    if (epoch() != t->epoch) break;
    const auto now = Clock::now();
    if (now >= window_end) {
      if (t->window_bytes < least) break;
      t->window_bytes = 0;
      window_end = now + window;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(window_end - now);
    curl_multi_poll(c->multi, nullptr, 0, static_cast<int>(std::min<int64_t>(left.count(), 1000)),
                    nullptr);
  }
  if (epoch() != t->epoch) {
    t->fail(error(Code::kAborted, "the read of %s was aborted", name_.c_str()), false);
  } else if (running != 0 && t->accepted && t->done == t->length && t->length != 0) {
    // All requested bytes have arrived; the server announced more and did not send them.
  } else if (running != 0) {
    t->fail(error(Code::kNetwork, "%s stopped sending", name_.c_str()), true);
  } else {
    int left = 0;
    const CURLMsg* message = curl_multi_info_read(c->multi, &left);
    const CURLcode code = message != nullptr ? message->data.result : CURLE_FAILED_INIT;
    conclude(static_cast<int>(code), detail, t);
    long redirects = 0;
    const char* effective = nullptr;
    curl_easy_getinfo(c->easy, CURLINFO_REDIRECT_COUNT, &redirects);
    curl_easy_getinfo(c->easy, CURLINFO_EFFECTIVE_URL, &effective);
    if (t->accepted && redirects > 0 && effective != nullptr) {
      const std::lock_guard<std::mutex> lock(mutex_);
      redirect_ = effective;
    }
  }
  curl_multi_remove_handle(c->multi, c->easy);
}

Status HttpClient::transfer_with_retries(Transfer* t) {
  const int patience = opened_ ? options_.attempts : options_.open_attempts;
  t->client = this;
  Backoff state;
  for (;;) {
    const uint64_t before = t->done;
    attempt(t);
    state.requests++;
    if (t->failure.ok()) return {};
    if (!t->retry) return t->failure;
    if (t->shorter && state.requests < kMaxRequests) continue;  // a server may shorten ranges
    if (t->done - before >= kProgressBytes) state.failures = 0;
    state.failures++;
    const bool was_redirected = t->redirected;
    if (was_redirected) {  // its signature may have expired: use the original URL
      const std::lock_guard<std::mutex> lock(mutex_);
      redirect_.clear();
    }
    if (state.failures >= std::max(1, patience) || state.requests >= kMaxRequests) {
      return error(t->failure.code(), "%s (after %d attempts)", t->failure.message().c_str(),
                   state.failures);
    }
    if (retry_after_ms(*t) > options_.max_retry_after_ms) {
      return error(t->failure.code(), "%s and asks to retry in %d seconds",
                   t->failure.message().c_str(), retry_after_ms(*t) / 1000);
    }
    if (was_redirected && t->status >= 400 && t->status < 500 && retry_after_ms(*t) == 0) continue;
    int delay = options_.backoff_ms;
    for (int i = 1; i < state.failures && delay < options_.max_backoff_ms; i++) delay *= 2;
    delay = std::min(delay, options_.max_backoff_ms);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      jitter_ = jitter_ * 6364136223846793005u + 1442695040888963407u;
      delay = delay / 2 + static_cast<int>((jitter_ >> 33) % static_cast<uint64_t>(delay / 2 + 1));
    }
    if (!wait(std::max(delay, retry_after_ms(*t)), t->epoch)) {
      return error(Code::kAborted, "the read of %s was aborted", name_.c_str());
    }
  }
}

Status HttpClient::open() {
  Transfer t;
  t.kind = Transfer::Kind::kProbe;
  t.length = 1;
  t.epoch = epoch();
  const Sink ignore = [](std::span<const uint8_t>) { return true; };
  t.sink = &ignore;
  SLUICE_RETURN_IF_ERROR(transfer_with_retries(&t));
  if (remote_.ranges && !t.range.total) {  // a 206 without a total size in Content-Range
    Transfer length;
    length.kind = Transfer::Kind::kProbeLength;
    length.epoch = t.epoch;
    length.sink = &ignore;
    SLUICE_RETURN_IF_ERROR(transfer_with_retries(&length));
  }
  opened_ = true;
  return {};
}

Status HttpClient::fetch(uint64_t offset, uint64_t length, uint64_t epoch, const Sink& sink) {
  if (length == 0) return {};
  Transfer t;
  t.kind = Transfer::Kind::kRange;
  t.offset = offset;
  t.length = length;
  t.epoch = epoch;
  t.sink = &sink;
  return transfer_with_retries(&t);
}

Status HttpClient::fetch_whole(uint64_t epoch, const Sink& sink) {
  Transfer t;
  t.kind = Transfer::Kind::kWhole;
  t.length = remote_.size;
  t.epoch = epoch;
  t.sink = &sink;
  return transfer_with_retries(&t);
}

}  // namespace sluice::io

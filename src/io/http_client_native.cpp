// The HTTP client over libcurl: connections, and a single attempt with its redirects.
#include "io/http_client_native.h"

#include <curl/curl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string_view>

#include "io/address.h"
#include "io/http_transfer_native.h"

namespace sluice::io {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxErrorBody = 64 << 10;  // read to keep the connection; longer ones are cut
constexpr int kMaxRedirects = 10;
constexpr long kWindowsRefused = 10061;  // WSAECONNREFUSED

// The scheme://host[:port]/path of a URL, for messages.
std::string public_name(const std::string& url) {
  std::string name = public_address(url);
  for (char& c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return name.substr(0, 200);
}

// A part of a URL as libcurl reads it; "" if it cannot be parsed.
std::string part_of(const std::string& url, CURLUPart part, unsigned flags) {
  CURLU* const parser = curl_url();
  char* text = nullptr;
  std::string out;
  if (parser != nullptr && curl_url_set(parser, CURLUPART_URL, url.c_str(), 0) == CURLUE_OK &&
      curl_url_get(parser, part, &text, flags) == CURLUE_OK) {
    out = text;
  }
  curl_free(text);
  curl_url_cleanup(parser);
  return out;
}

// An address of the server that the caller's headers are for.
const std::string& headers_url(const std::string& url, const Credentials& credentials) {
  if (credentials.model.empty()) return url;
  return credentials.model.starts_with("hf:") ? credentials.hub : credentials.model;
}

bool is_secure(const std::string& url) {
  return lower(url.substr(0, 6)) == "https:";
}

// libcurl rejects spaces.
std::string without_spaces(const std::string& url) {
  std::string out;
  for (const char c : url) out += c == ' ' ? std::string("%20") : std::string(1, c);
  return out;
}

}  // namespace

std::string origin_of(const std::string& url) {
  const std::string host = lower(part_of(url, CURLUPART_HOST, 0));
  if (host.empty()) return {};
  return lower(part_of(url, CURLUPART_SCHEME, 0)) + "://" + host + ":" +
         part_of(url, CURLUPART_PORT, CURLU_DEFAULT_PORT);
}

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
    if (!t->redirects()) t->client->check_response(t);
    if (t->stop) return 0;
    t->body += n;
    // The body of an error or a redirect: read a little, to keep the connection alive.
    if (!t->accepted) return t->body > kMaxErrorBody ? 0 : n;
    if (!t->is_probe()) t->client->bytes_fetched_.fetch_add(n, std::memory_order_relaxed);
    std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(data), n);
    const uint64_t skipped = std::min<uint64_t>(t->skip, n);
    t->skip -= skipped;
    bytes = bytes.subspan(static_cast<size_t>(skipped));
    if (const uint64_t left = t->length - t->done; bytes.size() > left) {
      if (!t->is_probe()) {
        const bool again = t->kind != Transfer::Kind::kText;
        t->fail(error(Code::kNetwork, "%s sent more bytes than %s", t->client->name().c_str(),
                      again ? "announced" : "such a text may have"),
                again);
        return 0;
      }
      t->stop = true;  // the first bytes of the file are enough
      bytes = bytes.first(static_cast<size_t>(left));
    }
    if (t->sink == nullptr) {
      t->bytes.insert(t->bytes.end(), bytes.begin(), bytes.end());
    } else if (!bytes.empty() && !(*t->sink)(bytes)) {
      t->fail(error(Code::kIo, "the bytes of %s could not be stored", t->client->name().c_str()),
              false);
      return 0;
    }
    t->done += bytes.size();
    return t->stop ? 0 : n;
  }
};

HttpClient::HttpClient(std::string url, OpenOptions options)
    : url_(without_spaces(url)),
      name_(public_name(url)),
      origin_(origin_of(url_)),
      headers_origin_(origin_of(headers_url(url_, options.credentials))),
      hub_origin_(origin_of(options.credentials.hub)),
      all_(std::move(options)),
      options_(all_.http) {
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

// What the caller gave for one server goes to no other.
void HttpClient::set_headers(Connection* c, const std::string& url) {
  curl_slist_free_all(c->headers);
  c->headers = curl_slist_append(nullptr, "Accept-Encoding: identity");
  const auto add = [c](const std::string& line) {
    c->headers = curl_slist_append(c->headers, line.c_str());
  };
  const std::string origin = origin_of(url);
  bool authorized = false;
  if (!origin.empty() && origin == headers_origin_) {
    for (const std::string& header : all_.credentials.headers) {
      authorized = authorized || lower(header).starts_with("authorization:");
      add(header);
    }
  }
  if (!origin.empty() && origin == origin_) {
    const std::string user = part_of(url_, CURLUPART_USER, CURLU_URLDECODE);
    const std::string password = part_of(url_, CURLUPART_PASSWORD, CURLU_URLDECODE);
    if (!user.empty()) curl_easy_setopt(c->easy, CURLOPT_USERNAME, user.c_str());
    if (!password.empty()) curl_easy_setopt(c->easy, CURLOPT_PASSWORD, password.c_str());
  }
  const std::string& token = all_.credentials.token;
  if (!authorized && !token.empty() && !origin.empty() && origin == hub_origin_) {
    add("Authorization: Bearer " + token);
  }
  curl_easy_setopt(c->easy, CURLOPT_HTTPHEADER, c->headers);
}

void HttpClient::setup(Connection* c, Transfer* t, const std::string& url) {
  CURL* e = c->easy;
  curl_easy_reset(e);
  curl_easy_setopt(e, CURLOPT_URL, url.c_str());
  curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, is_secure(url_) ? "https" : "http,https");
  curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(e, CURLOPT_QUICK_EXIT, 1L);  // an abort does not wait for a DNS look-up
  // Parallel ranges use a connection each, not streams of one HTTP/2 connection.
  curl_easy_setopt(e, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options_.connect_timeout_ms));
  curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(e, CURLOPT_BUFFERSIZE, 256L << 10);
  curl_easy_setopt(e, CURLOPT_USERAGENT, "sluice");
  set_headers(c, url);
  curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, &Callbacks::header);
  curl_easy_setopt(e, CURLOPT_HEADERDATA, t);
  curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, &Callbacks::write);
  curl_easy_setopt(e, CURLOPT_WRITEDATA, t);
  // An open connection always leads to the same one of several servers.
  if (t->kind == Transfer::Kind::kSample) curl_easy_setopt(e, CURLOPT_FRESH_CONNECT, 1L);
  if (t->has_range()) {
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

// Runs one request and follows its redirects. Remembers where they lead.
void HttpClient::run(Connection* c, Transfer* t) {
  std::string url = current_url(&t->redirected);
  for (int redirects = 0;; ++redirects) {
    std::string next = run_once(c, t, url);
    if (next.empty()) {
      if (!t->accepted || redirects == 0) return;
      const std::lock_guard<std::mutex> lock(mutex_);
      redirect_ = std::move(url);
      return;
    }
    if (redirects == kMaxRedirects) {
      return t->fail(error(Code::kNetwork, "%s: too many redirects", name_.c_str()), false);
    }
    // libcurl before 7.85 does not know CURLOPT_PROTOCOLS_STR. No redirect leaves HTTPS.
    const std::string scheme = lower(next.substr(0, next.find(':')));
    if (scheme != "https" && (scheme != "http" || is_secure(url_))) {
      return t->fail(
          error(Code::kNetwork, "%s redirects to an address of another kind", name_.c_str()),
          false);
    }
    url = std::move(next);
    t->begin_request();
  }
}

// Runs one request to its end, and checks for abort() and stalls. Returns the target if it is a
// redirect.
std::string HttpClient::run_once(Connection* c, Transfer* t, const std::string& url) {
  char detail[CURL_ERROR_SIZE] = "";
  std::string next;
  setup(c, t, url);
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
    const char* target = nullptr;
    long problem = 0;
    if (t->redirects()) curl_easy_getinfo(c->easy, CURLINFO_REDIRECT_URL, &target);
    if (code == CURLE_COULDNT_CONNECT) curl_easy_getinfo(c->easy, CURLINFO_OS_ERRNO, &problem);
    t->refused = problem == ECONNREFUSED || problem == kWindowsRefused;
    if (target != nullptr) next = target;
    if (next.empty()) conclude(static_cast<int>(code), detail, t);
  }
  curl_multi_remove_handle(c->multi, c->easy);
  return next;
}

}  // namespace sluice::io

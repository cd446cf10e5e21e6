// What surrounds an attempt: retries with backoff, and the requests that open and read a file.
#include <curl/curl.h>

#include <algorithm>
#include <ctime>

#include "io/http_transfer_native.h"

namespace sluice::io {

namespace {

constexpr uint64_t kProgressBytes = 64 << 10;  // fewer bytes of an attempt count as no progress
constexpr int kMaxRequests = 1000;             // of one fetch, even with progress

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

// The address of the next page in a Link header: <https://host/list?page=2>; rel="next"
std::string next_page(const std::string& link) {
  const size_t end = link.find(">; rel=\"next\"");
  if (end == std::string::npos) return {};
  const size_t start = link.rfind('<', end);
  return start == std::string::npos ? "" : link.substr(start + 1, end - start - 1);
}

}  // namespace

// The time to wait after so many failures in a row.
int HttpClient::delay_ms(int failures) {
  int delay = options_.backoff_ms;
  for (int i = 1; i < failures && delay < options_.max_backoff_ms; i++) delay *= 2;
  delay = std::min(delay, options_.max_backoff_ms);
  const std::lock_guard<std::mutex> lock(mutex_);
  jitter_ = jitter_ * 6364136223846793005u + 1442695040888963407u;
  return delay / 2 + static_cast<int>((jitter_ >> 33) % static_cast<uint64_t>(delay / 2 + 1));
}

// Says once that the server is tried again, until it sends something. A busy server or a cut
// connection is worth a word only when the next attempt has failed too.
void HttpClient::tell_retry(const Transfer& t, int failures) {
  if (!all_.on_warning || (t.status != 0 && failures < 2)) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (told_) return;
    told_ = true;
  }
  all_.on_warning(t.failure.message() + ", trying again");
}

Status HttpClient::transfer_with_retries(Transfer* t) {
  const int patience = opened_ ? options_.attempts : options_.open_attempts;
  t->client = this;
  int failures = 0, waited = 0;
  for (int requests = 1;; ++requests) {
    const uint64_t before = t->done;
    attempt(t);
    if (t->failure.ok() || t->done > before) {
      const std::lock_guard<std::mutex> lock(mutex_);
      told_ = false;
    }
    if (t->failure.ok()) return {};
    if (t->alias && requests < kMaxRequests && is_alias(*t)) continue;
    if (!t->retry) return t->failure;
    const bool shortened = t->shorter && requests < kMaxRequests;  // servers may limit a range
    if (t->again || shortened) continue;
    if (t->done - std::min(before, t->done) >= kProgressBytes) failures = waited = 0;
    failures++;
    const bool was_redirected = t->redirected;
    if (was_redirected) {  // its signature may have expired: use the original URL
      const std::lock_guard<std::mutex> lock(mutex_);
      redirect_.clear();
    }
    const int delay = std::max(delay_ms(failures), retry_after_ms(*t));
    if (failures >= std::max(1, patience) || requests >= kMaxRequests ||
        (t->refused && waited + delay >= options_.refused_ms)) {
      return error(t->failure.code(), "%s (after %d attempts)", t->failure.message().c_str(),
                   failures);
    }
    if (retry_after_ms(*t) > options_.max_retry_after_ms) {
      return error(t->failure.code(), "%s and asks to retry in %d seconds",
                   t->failure.message().c_str(), retry_after_ms(*t) / 1000);
    }
    if (was_redirected && t->status >= 400 && t->status < 500 && retry_after_ms(*t) == 0) continue;
    tell_retry(*t, failures);
    if (!wait(delay, t->epoch)) {
      return error(Code::kAborted, "the read of %s was aborted", name_.c_str());
    }
    waited += delay;
  }
}

Status HttpClient::open() {
  Transfer t;
  t.kind = Transfer::Kind::kProbe;
  t.epoch = epoch();
  SLUICE_RETURN_IF_ERROR(transfer_with_retries(&t));
  if (is_web_page(t.bytes, t.type)) {
    const bool page = name_.find("/blob/") != std::string::npos;
    return error(Code::kNotGguf, "%s is a web page (HTML) and not a model: %s", name_.c_str(),
                 page ? "in addresses of Hugging Face, write resolve in place of blob"
                      : "it may ask for a login, or be a page about the model");
  }
  if (remote_.ranges && !t.range.total) {  // a Content-Range without the total size
    Transfer length;
    length.kind = Transfer::Kind::kProbeWhole;
    length.epoch = t.epoch;
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

Result<RemoteText> HttpClient::fetch_text(size_t max_bytes) {
  Transfer t;
  t.kind = Transfer::Kind::kText;
  t.length = max_bytes;
  t.epoch = epoch();
  const Status status = transfer_with_retries(&t);
  RemoteText out;
  if (status.code() == Code::kHttpStatus) out.status = t.status;
  const bool absent =
      out.status == 401 || out.status == 403 || out.status == 404 || out.status == 410;
  if (!status.ok() && !absent) return status;
  if (absent) return out;
  out.text.assign(t.bytes.begin(), t.bytes.end());
  const std::string next = next_page(t.link);
  if (origin_of(next) == origin_) out.next = next;
  return out;
}

Result<RemoteText> fetch_text(const std::string& url, size_t max_bytes,
                              const OpenOptions& options) {
  return HttpClient(url, options).fetch_text(max_bytes);
}

}  // namespace sluice::io

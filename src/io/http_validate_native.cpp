// Validates responses: whether the headers match the requested range and the opened file, and
// whether a failed request is worth a retry.
#include <curl/curl.h>

#include "io/http_transfer_native.h"

namespace sluice::io {

// Decides the outcome of an attempt that was not cut short by abort() or a stall.
void HttpClient::conclude(int curl_code, const char* detail, Transfer* t) {
  const auto code = static_cast<CURLcode>(curl_code);
  if (t->status != 0 && (code == CURLE_OK || code == CURLE_PARTIAL_FILE)) check_response(t);
  if (t->stop || !t->failure.ok()) return;  // decided by the headers or the sink
  if (code == CURLE_OK && t->accepted) {
    if (t->done == t->length || t->kind == Transfer::Kind::kText) return;
    const ContentRange& r = t->range;
    t->shorter = r.first && r.last && t->body == *r.last - *r.first + 1;
    t->fail(error(Code::kNetwork, "%s sent %llu of %llu bytes", name_.c_str(), ull(t->done),
                  ull(t->length)),
            true);
    return;
  }
  // Errors for which a retry is useless.
  const bool final = code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL ||
                     code == CURLE_TOO_MANY_REDIRECTS || code == CURLE_PEER_FAILED_VERIFICATION ||
                     code == CURLE_SSL_CACERT_BADFILE || code == CURLE_OUT_OF_MEMORY;
  const char* why = t->refused          ? "connection refused"
                    : detail[0] != '\0' ? detail
                                        : curl_easy_strerror(code);
  t->fail(error(code == CURLE_URL_MALFORMAT ? Code::kInvalidArgument : Code::kNetwork, "%s: %s",
                name_.c_str(), why),
          !final);
}

bool HttpClient::same_file(const Transfer& t) const {
  if (!opened_) return true;
  const auto differs = [](const std::string& a, const std::string& b) {
    return !a.empty() && !b.empty() && a != b;
  };
  const bool tagged = !remote_.etag.empty() && !t.etag.empty();
  if (tagged && !knows(t.etag)) return false;
  if (!tagged && differs(remote_.last_modified, t.last_modified)) return false;
  return !t.range.total || *t.range.total == remote_.size;
}

// Checks the headers of a response once, before its first body byte is used.
void HttpClient::check_response(Transfer* t) {
  if (t->judged) return;
  t->judged = true;
  if (t->status >= 400 && !(t->status == 416 && t->kind == Transfer::Kind::kProbe)) {
    return check_error_status(t);
  }
  if (!t->encoding.empty() && t->encoding != "identity") return ask_uncompressed(t);
  if (t->status != 200 && t->status != 206 && t->status != 416) {
    t->stop = true;
    return t->fail(
        error(Code::kHttpStatus, "%s answered with HTTP status %d", name_.c_str(), t->status),
        false);
  }
  if (t->is_probe()) return check_probe(t);
  if (t->kind == Transfer::Kind::kText) {
    t->accepted = true;
    return;
  }
  if (t->kind == Transfer::Kind::kSample && t->status == 206) return check_partial(t);
  if (!same_file(*t)) {
    t->stop = true;
    t->alias = may_be_alias(*t);
    return t->fail(
        error(Code::kSourceChanged, "%s is no longer the file that was opened", name_.c_str()),
        false);
  }
  if (t->status == 206 && t->kind == Transfer::Kind::kRange) return check_partial(t);
  const bool whole = t->offset + t->done == 0 && t->length == remote_.size;
  if (t->has_range() && !whole) {
    t->stop = true;  // retried: of several servers behind one name, another may support ranges
    return t->fail(error(Code::kNoRangeSupport, "%s answered a range request with the whole file",
                         name_.c_str()),
                   true);
  }
  if (t->content_length && *t->content_length != remote_.size) {
    t->stop = true;
    return t->fail(error(Code::kSourceChanged, "%s changed its length from %llu to %llu bytes",
                         name_.c_str(), ull(remote_.size), ull(*t->content_length)),
                   false);
  }
  t->accepted = true;
}

// Some servers compress what they send, or stored it compressed. A request without a range may give
// the file itself, so that is tried once.
void HttpClient::ask_uncompressed(Transfer* t) {
  t->stop = true;
  t->fail(error(Code::kNetwork, "%s was sent compressed (%.40s), which is unsupported",
                name_.c_str(), t->encoding.c_str()),
          !t->uncompressed);
  t->again = !t->uncompressed;
  t->uncompressed = true;
  if (t->kind != Transfer::Kind::kProbe) return;
  t->kind = Transfer::Kind::kProbeWhole;
  remote_.ranges = false;
}

void HttpClient::check_probe(Transfer* t) {
  using enum Transfer::Kind;
  const ContentRange& r = t->range;
  const bool first = r.first == 0u && r.last && *r.last < kProbeBytes;
  if (t->status == 206 && (t->kind == kProbeWhole || !first)) {
    // Parts that were not asked for, or that do not say which they are, cannot be used.
    const bool retry = t->kind == kProbe;
    t->stop = true;
    t->kind = kProbeWhole;
    remote_.ranges = false;
    t->fail(error(Code::kNetwork, "%s sent other bytes than requested", name_.c_str()), retry);
    t->again = retry;
    return;
  }
  if (t->status == 206) {
    remote_.ranges = true;
    remote_.size = r.total.value_or(0);
    t->length = *r.last + 1;
  } else if (t->status == 416) {  // to the first byte: the file is empty
    remote_.ranges = true;
    remote_.size = t->length = 0;
    t->range.total = 0;
  } else {
    if (!t->content_length) {
      t->stop = true;
      t->fail(error(Code::kNoRangeSupport, "%s does not report the file's length", name_.c_str()),
              false);
      return;
    }
    if (t->kind == kProbe) remote_.ranges = false;
    remote_.size = *t->content_length;
    t->length = std::min(kProbeBytes, remote_.size);
    t->stop = t->length == 0;
  }
  t->accepted = true;
  remote_.etag = t->etag;
  remote_.last_modified = t->last_modified;
  if (remote_.size > kMaxFileBytes) {
    t->accepted = false;
    t->stop = true;
    t->fail(error(Code::kBadHeader, "%s has an impossible length of %llu bytes", name_.c_str(),
                  ull(remote_.size)),
            false);
  }
}

void HttpClient::check_partial(Transfer* t) {
  const uint64_t first = t->offset + t->done;
  const uint64_t wanted = t->length - t->done;
  const ContentRange& r = t->range;
  // Without a Content-Range it could be any part.
  const bool good = t->type.find("multipart/") == std::string::npos && r.first && r.last &&
                    *r.first == first && *r.last >= first && *r.last - first < wanted &&
                    t->content_length.value_or(*r.last - first + 1) == *r.last - first + 1;
  if (!good) {
    t->stop = true;
    return t->fail(error(Code::kNetwork, "%s sent other bytes than the requested %llu at %llu",
                         name_.c_str(), ull(wanted), ull(first)),
                   true);
  }
  t->accepted = true;
}

void HttpClient::check_error_status(Transfer* t) {
  if (t->status == 416) {
    return t->fail(
        error(Code::kSourceChanged, "%s no longer has the bytes at %llu (HTTP status 416)",
              name_.c_str(), ull(t->offset + t->done)),
        false);
  }
  const bool busy = t->status == 408 || t->status == 429 || t->status >= 500;
  t->fail(error(Code::kHttpStatus, "%s answered with HTTP status %d", name_.c_str(), t->status),
          busy || t->redirected);
}

}  // namespace sluice::io

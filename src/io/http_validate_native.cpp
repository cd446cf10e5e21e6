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
    if (t->done == t->length) return;
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
  const char* why = detail[0] != '\0' ? detail : curl_easy_strerror(code);
  t->fail(error(code == CURLE_URL_MALFORMAT ? Code::kInvalidArgument : Code::kNetwork, "%s: %s",
                name_.c_str(), why),
          !final);
}

bool HttpClient::same_file(const Transfer& t) const {
  if (!opened_) return true;
  const auto differs = [](const std::string& a, const std::string& b) {
    return !a.empty() && !b.empty() && a != b;
  };
  if (differs(remote_.etag, t.etag)) return false;
  const bool tagged = !remote_.etag.empty() && !t.etag.empty();
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
  if (!t->encoding.empty() && t->encoding != "identity") {
    t->stop = true;
    return t->fail(error(Code::kNetwork, "%s was sent compressed (%.40s), which is unsupported",
                         name_.c_str(), t->encoding.c_str()),
                   false);
  }
  if (t->status != 200 && t->status != 206 && t->status != 416) {
    t->stop = true;
    return t->fail(
        error(Code::kHttpStatus, "%s answered with HTTP status %d", name_.c_str(), t->status),
        false);
  }
  if (t->kind == Transfer::Kind::kProbe || t->kind == Transfer::Kind::kProbeLength) {
    return check_probe(t);
  }
  if (!same_file(*t)) {
    t->stop = true;
    return t->fail(
        error(Code::kSourceChanged, "%s is no longer the file that was opened", name_.c_str()),
        false);
  }
  if (t->status == 206 && t->kind == Transfer::Kind::kRange) return check_partial(t);
  const bool whole = t->offset + t->done == 0 && t->length == remote_.size;
  if (t->kind == Transfer::Kind::kRange && !whole) {
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

void HttpClient::check_probe(Transfer* t) {
  t->stop = true;  // the headers are enough
  t->accepted = true;
  if (t->kind == Transfer::Kind::kProbeLength || t->status == 200) {
    if (!t->content_length) {
      t->accepted = false;
      t->fail(error(Code::kNoRangeSupport, "%s does not report the file's length", name_.c_str()),
              false);
      return;
    }
    remote_.size = *t->content_length;
    if (t->kind == Transfer::Kind::kProbe) remote_.ranges = false;
  } else if (t->status == 206) {
    t->stop = t->content_length.value_or(2) > 1;  // one byte: read it, keep the connection
    remote_.ranges = true;
    remote_.size = t->range.total.value_or(0);
  } else {
    remote_.ranges = true;  // 416 to the first byte: the file is empty
    remote_.size = 0;
    t->range.total = 0;
  }
  remote_.etag = t->etag;
  remote_.last_modified = t->last_modified;
  if (remote_.size > kMaxFileBytes) {
    t->accepted = false;
    t->fail(error(Code::kBadHeader, "%s has an impossible length of %llu bytes", name_.c_str(),
                  ull(remote_.size)),
            false);
  }
}

void HttpClient::check_partial(Transfer* t) {
  const uint64_t first = t->offset + t->done;
  const uint64_t wanted = t->length - t->done;
  const ContentRange& r = t->range;
  bool good = t->type.find("multipart/") == std::string::npos;
  if (r.present) {
    good = good && r.first && *r.first == first && r.last && *r.last >= first &&
           *r.last - first < wanted;
    if (good && t->content_length) good = *t->content_length == *r.last - first + 1;
  } else {
    good = good && t->content_length.value_or(wanted) == wanted;
  }
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

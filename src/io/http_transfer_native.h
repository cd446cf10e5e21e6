// What a fetch of HttpClient knows of itself: shared by the attempts that make it
// (http_client_native.cpp) and the judgement of their answers (http_validate_native.cpp).
#pragma once

#include "io/http_client_native.h"
#include "io/http_response.h"

namespace sluice::io {

// One fetch over all its attempts (first block), and the answer of the attempt under way.
struct HttpClient::Transfer : HttpResponse {
  enum class Kind { kProbe, kProbeLength, kRange, kWhole };
  Kind kind = Kind::kRange;
  uint64_t offset = 0;
  uint64_t length = 0;
  uint64_t done = 0;  // bytes handed to the sink
  uint64_t epoch = 0;
  const Sink* sink = nullptr;
  HttpClient* client = nullptr;

  bool redirected = false;  // asked at a remembered redirect target
  bool judged = false;
  bool accepted = false;
  bool stop = false;     // the headers said all that is wanted
  bool shorter = false;  // all of a range came that the server had made shorter than asked for
  uint64_t skip = 0;     // bytes of the body before `done`
  uint64_t body = 0;     // bytes of the body so far
  uint64_t window_bytes = 0;

  Status failure;  // of this attempt
  bool retry = false;

  void begin_attempt() {
    begin_response();
    failure = {};
    retry = false;
    body = 0;
    window_bytes = 0;
    skip = kind == Kind::kWhole ? done : 0;
  }
  void begin_response() {
    static_cast<HttpResponse&>(*this) = {};
    judged = accepted = stop = shorter = false;
  }
  void fail(Status s, bool again) {
    failure = std::move(s);
    retry = again;
  }
};

[[nodiscard]] inline unsigned long long ull(uint64_t v) {
  return v;
}

}  // namespace sluice::io

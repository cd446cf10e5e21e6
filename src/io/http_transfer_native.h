// The state of one HttpClient fetch, shared by its attempts (http_client_native.cpp) and the
// validation of their responses (http_validate_native.cpp).
#pragma once

#include "io/http_client_native.h"
#include "io/http_response.h"

namespace sluice::io {

// A fetch over all its attempts (first block), and the response of the current attempt.
struct HttpClient::Transfer : HttpResponse {
  enum class Kind { kProbe, kProbeLength, kRange, kWhole };
  Kind kind = Kind::kRange;
  uint64_t offset = 0;
  uint64_t length = 0;
  uint64_t done = 0;  // bytes handed to the sink
  uint64_t epoch = 0;
  const Sink* sink = nullptr;
  HttpClient* client = nullptr;

  bool redirected = false;  // sent to a remembered redirect target
  bool judged = false;
  bool accepted = false;
  bool stop = false;     // the headers are enough: the body is not needed
  bool shorter = false;  // the server sent a complete range that is shorter than the requested one
  uint64_t skip = 0;     // bytes of the body before `done`
  uint64_t body = 0;     // bytes of the body so far
  uint64_t window_bytes = 0;

  Status failure;  // of the current attempt
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

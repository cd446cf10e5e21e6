// The state of one HttpClient fetch, shared by its attempts (http_client_native.cpp) and the
// validation of their responses (http_validate_native.cpp).
#pragma once

#include "io/http_client_native.h"
#include "io/http_response.h"

namespace sluice::io {

inline constexpr uint64_t kProbeBytes = 512;        // of the first request
inline constexpr uint64_t kSampleBytes = 64 << 10;  // compared when ETags differ

// A fetch over all its attempts (first block), and the response of the current attempt.
struct HttpClient::Transfer : HttpResponse {
  // kProbeWhole is a probe without a range. kSample is a range of any version.
  enum class Kind { kProbe, kProbeWhole, kRange, kWhole, kSample, kText };
  Kind kind = Kind::kRange;
  uint64_t offset = 0;
  uint64_t length = 0;
  uint64_t done = 0;  // bytes handed to the sink
  uint64_t epoch = 0;
  const Sink* sink = nullptr;  // null: `bytes`
  HttpClient* client = nullptr;

  bool redirected = false;     // sent to a remembered redirect target
  bool uncompressed = false;   // asked again because a response was compressed
  std::vector<uint8_t> bytes;  // received so far, where there is no sink
  bool judged = false;
  bool accepted = false;
  bool stop = false;     // the headers are enough: the body is not needed
  bool shorter = false;  // the server sent a complete range that is shorter than the requested one
  uint64_t skip = 0;     // bytes of the body before `done`
  uint64_t body = 0;     // bytes of the body so far
  uint64_t window_bytes = 0;

  Status failure;  // of the current attempt
  bool retry = false;
  bool again = false;    // retry at once
  bool refused = false;  // nothing listens there
  bool alias = false;    // failed because of its ETag, which may be another server's for the file

  void begin_attempt() {
    begin_response();
    failure = {};
    retry = again = refused = alias = false;
    window_bytes = 0;
    if (is_probe()) length = kProbeBytes;
    if (sink == nullptr) {  // begins again
      done = 0;
      bytes.clear();
    }
    begin_request();
  }
  void begin_request() {
    body = 0;
    skip = kind == Kind::kWhole ? done : 0;
  }
  [[nodiscard]] bool is_probe() const { return kind == Kind::kProbe || kind == Kind::kProbeWhole; }
  [[nodiscard]] bool has_range() const {
    return kind == Kind::kProbe || kind == Kind::kRange || kind == Kind::kSample;
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

// "https://host:443" in small letters; "" if the URL cannot be parsed.
[[nodiscard]] std::string origin_of(const std::string& url);

[[nodiscard]] inline unsigned long long ull(uint64_t v) {
  return v;
}

}  // namespace sluice::io

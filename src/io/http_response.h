// Parses the header of an HTTP response, line by line as it arrives. Nothing is trusted: sizes
// beyond 2^62, long values and malformed lines are ignored. The rest is checked against the request
// (http_validate_native.cpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::io {

// Converts ASCII letters to lower case, for names and values that are not case-sensitive.
[[nodiscard]] std::string lower(std::string_view s);

// The Content-Range header: which part of the file the response has.
struct ContentRange {
  bool present = false;
  std::optional<uint64_t> first, last, total;
};

struct HttpResponse {
  int status = 0;
  std::string etag, last_modified, encoding, type, retry_after;
  std::optional<uint64_t> content_length, retry_after_seconds;
  ContentRange range;

  // Whether this is the first line of a new response.
  [[nodiscard]] static bool begins(std::string_view line) { return line.substr(0, 5) == "HTTP/"; }
  void read_line(std::string_view line);

 private:
  void read_field(const std::string& name, std::string_view value);
};

}  // namespace sluice::io

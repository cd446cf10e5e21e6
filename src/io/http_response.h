// Parses the header of an HTTP response, line by line as it arrives. Nothing is trusted: sizes
// beyond 2^62, long values and malformed lines are ignored. The rest is checked against the request
// (http_validate_native.cpp).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace sluice::io {

// Converts ASCII letters to lower case, for names and values that are not case-sensitive.
[[nodiscard]] std::string lower(std::string_view s);

// Whether a file is a web page, such as a login page, in the place of a model. `first`: its first
// bytes; `type`: its Content-Type in small letters.
[[nodiscard]] bool is_web_page(std::span<const uint8_t> first, const std::string& type);

// The Content-Range header: which part of the file the response has.
struct ContentRange {
  bool present = false;
  std::optional<uint64_t> first, last, total;
};

struct HttpResponse {
  int status = 0;
  std::string etag, last_modified, encoding, type, retry_after, link;
  std::optional<uint64_t> content_length, retry_after_seconds;
  ContentRange range;

  bool has_location = false;

  // Whether it names another address to ask.
  [[nodiscard]] bool redirects() const {
    return has_location &&
           (status == 301 || status == 302 || status == 303 || status == 307 || status == 308);
  }
  // Whether this is the first line of a new response.
  [[nodiscard]] static bool begins(std::string_view line) { return line.substr(0, 5) == "HTTP/"; }
  void read_line(std::string_view line);

 private:
  void read_field(const std::string& name, std::string_view value);
};

}  // namespace sluice::io

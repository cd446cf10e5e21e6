// What the head of an HTTP answer says, line by line as it arrives. Nothing here is believed: sizes
// beyond 2^62, long values and lines that are no header are passed over, and what is left is judged
// against what was asked (http_client_native.cpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::io {

// ASCII letters made small: names and values that are not case-sensitive.
[[nodiscard]] std::string lower(std::string_view s);

// What a server says about the part that it sends.
struct ContentRange {
  bool present = false;
  std::optional<uint64_t> first, last, total;
};

struct HttpResponse {
  int status = 0;
  std::string etag, last_modified, encoding, type, retry_after;
  std::optional<uint64_t> content_length, retry_after_seconds;
  ContentRange range;

  // Is this the line that a new answer begins with?
  [[nodiscard]] static bool begins(std::string_view line) { return line.substr(0, 5) == "HTTP/"; }
  void read_line(std::string_view line);

 private:
  void read_field(const std::string& name, std::string_view value);
};

}  // namespace sluice::io

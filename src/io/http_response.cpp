// Parses header lines (RFC 9110).
#include "io/http_response.h"

#include <charconv>

namespace sluice::io {

namespace {

constexpr size_t kMaxHeaderValue = 4 << 10;  // longer ETags and the like are ignored

std::string_view trim(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() &&
         (s.back() == ' ' || s.back() == '\t' || s.back() == '\r' || s.back() == '\n')) {
    s.remove_suffix(1);
  }
  return s;
}

std::optional<uint64_t> parse_u64(std::string_view s) {
  uint64_t v = 0;
  const auto [end, ec] = std::from_chars(s.data(), s.data() + s.size(), v);
  if (ec != std::errc() || end != s.data() + s.size() || v >> 62 != 0) return std::nullopt;
  return v;
}

// "bytes 0-99/1000", "bytes 0-99/*", "bytes */1000"
ContentRange content_range(std::string_view value) {
  ContentRange range;
  range.present = true;
  if (value.substr(0, 5) != "bytes") return range;
  value = trim(value.substr(5));
  const size_t slash = value.find('/');
  if (slash == std::string_view::npos) return range;
  range.total = parse_u64(trim(value.substr(slash + 1)));
  const std::string_view part = value.substr(0, slash);
  const size_t dash = part.find('-');
  if (dash != std::string_view::npos) {
    range.first = parse_u64(trim(part.substr(0, dash)));
    range.last = parse_u64(trim(part.substr(dash + 1)));
  }
  return range;
}

}  // namespace

std::string lower(std::string_view s) {
  std::string out(s);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

bool is_web_page(std::span<const uint8_t> first, const std::string& type) {
  std::string text = lower({reinterpret_cast<const char*>(first.data()), first.size()});
  if (text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);
  text.erase(0, text.find_first_not_of(" \t\r\n"));
  if (text.starts_with("<!doctype html") || text.starts_with("<html")) return true;
  return text.starts_with('<') && type.find("html") != std::string::npos;
}

void HttpResponse::read_line(std::string_view line) {
  if (begins(line)) {
    const size_t space = line.find(' ');
    if (space == std::string_view::npos) return;
    status = static_cast<int>(parse_u64(line.substr(space + 1, 3)).value_or(0));
    return;
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  const std::string_view value = trim(line.substr(colon + 1));
  if (lower(line.substr(0, colon)) == "location") has_location = !value.empty();
  if (line.size() > kMaxHeaderValue) return;
  read_field(lower(line.substr(0, colon)), value);
}

void HttpResponse::read_field(const std::string& name, std::string_view value) {
  if (name == "etag") etag = value;
  if (name == "last-modified") last_modified = value;
  if (name == "content-encoding") encoding = lower(value);
  if (name == "content-type") type = lower(value);
  if (name == "content-length") content_length = parse_u64(value);
  if (name == "content-range") range = content_range(lower(value));
  if (name == "link") link = value;
  if (name == "retry-after") {
    retry_after = value;
    retry_after_seconds = parse_u64(value);
  }
}

}  // namespace sluice::io

// These rules work on the text of an address, so they hold even for addresses that cannot be
// parsed.
#include "io/address.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace sluice::io {

namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Removes "user:password@": up to the last @ of the host, or further if the password contains a
// slash and so hides the host.
std::string without_user(std::string url) {
  const size_t colons = url.find("://");
  if (colons == std::string::npos) return url;
  const size_t start = colons + 3;
  const size_t end = std::min(url.find_first_of("/?#", start), url.size());
  const std::string_view host = std::string_view(url).substr(start, end - start);
  size_t at = host.rfind('@');
  if (at == std::string_view::npos && !host.empty() && host[0] != '[') {
    const size_t colon = host.find(':');
    const bool odd =
        colon != std::string_view::npos &&
        !std::all_of(host.begin() + static_cast<ptrdiff_t>(colon) + 1, host.end(), is_digit);
    const size_t last = url.rfind('@');
    if (odd && last != std::string::npos && last > start) at = last - start;
  }
  if (at != std::string_view::npos) url.erase(start, at + 1);
  return url;
}

bool is_secret(std::string_view parameter) {
  std::string name;
  for (const char c : parameter.substr(0, parameter.find('='))) {
    if (c == '-' || c == '_') continue;
    name += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  const auto has = [&](const char* word) { return name.find(word) != std::string::npos; };
  if (name == "sig" || name.rfind("xamz", 0) == 0 || name.rfind("xgoog", 0) == 0) return true;
  for (const char* word : {"signature", "secret", "passw", "credential", "policy", "expires",
                           "apikey", "accesskey", "keypair"}) {
    if (has(word)) return true;
  }
  return (has("token") && !has("tokeniz")) || (has("auth") && !has("author"));
}

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// The position of the digits in "-00002-of-00003.gguf" at the end of a path; npos if there are
// none.
size_t part_number(std::string_view path) {
  constexpr size_t kLength = 20;
  if (path.size() < kLength) return std::string_view::npos;
  const std::string_view tail = path.substr(path.size() - kLength);
  const bool digits = std::all_of(tail.begin() + 1, tail.begin() + 6, is_digit) &&
                      std::all_of(tail.begin() + 10, tail.begin() + 15, is_digit);
  if (!digits || tail[0] != '-' || tail.substr(6, 4) != "-of-" || tail.substr(15) != ".gguf") {
    return std::string_view::npos;
  }
  return path.size() - kLength + 1;
}

}  // namespace

std::string public_address(const std::string& url) {
  const std::string plain = without_user(url);
  return plain.substr(0, plain.find_first_of("?#"));
}

std::string stored_address(const std::string& url) {
  std::string plain = without_user(url);
  plain.erase(std::min(plain.find('#'), plain.size()));
  const size_t question = plain.find('?');
  if (question == std::string::npos) return plain;
  std::string kept = plain.substr(0, question);
  char separator = '?';
  for (size_t at = question + 1; at <= plain.size();) {
    const size_t end = std::min(plain.find('&', at), plain.size());
    const std::string_view parameter = std::string_view(plain).substr(at, end - at);
    if (!parameter.empty() && !is_secret(parameter)) {
      kept += separator;
      kept += parameter;
      separator = '&';
    }
    at = end + 1;
  }
  return kept;
}

std::string model_address(const std::string& url) {
  const size_t question = std::min(url.find('?'), url.size());
  std::string path = url.substr(0, question);
  if (ends_with(path, ".json") || ends_with(path, ".jinja") || ends_with(path, ".safetensors")) {
    path.erase(path.rfind('/') + 1);
  } else if (const size_t digits = part_number(path); digits != std::string::npos) {
    path.replace(digits, 5, "00001");
  }
  return path + url.substr(question);
}

}  // namespace sluice::io

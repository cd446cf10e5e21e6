// Splits addresses into directory, name, query and part number.
#include "open/address.h"

#include <algorithm>
#include <cstdio>

#include "gguf/gguf.h"

namespace sluice::open {
namespace {

constexpr std::string_view kSplitPattern = "-00000-of-00000.gguf";

bool is_url(std::string_view address) {
  return address.find("://") != std::string_view::npos;
}

// The length of the path. In a URL it ends where the query begins.
size_t path_length(std::string_view address) {
  return is_url(address) ? std::min(address.find_first_of("?#"), address.size()) : address.size();
}

size_t after_last_slash(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? 0 : slash + 1;
}

bool names_file_of_directory(std::string_view path) {
  return path.ends_with("config.json") || path.ends_with(".safetensors");
}

// The position of a final "-NNNNN-of-NNNNN.gguf"; npos if there is none.
size_t find_split_suffix(std::string_view path) {
  if (path.size() < kSplitPattern.size()) return std::string_view::npos;
  const size_t at = path.size() - kSplitPattern.size();
  for (size_t i = 0; i < kSplitPattern.size(); i++) {
    const char c = path[at + i];
    const bool match = kSplitPattern[i] == '0' ? (c >= '0' && c <= '9') : c == kSplitPattern[i];
    if (!match) return std::string_view::npos;
  }
  return at;
}

uint32_t five_digits(std::string_view digits) {
  uint32_t n = 0;
  for (const char c : digits.substr(0, 5)) n = n * 10 + static_cast<uint32_t>(c - '0');
  return n;
}

}  // namespace

std::string Place::file(std::string_view name) const {
  return std::string(directory).append(name).append(query);
}

std::string_view Place::model_name() const {
  std::string_view path = directory;
  while (path.ends_with('/')) path.remove_suffix(1);
  if (is_url(path)) path = path.substr(0, path.rfind("/resolve/"));
  return path.substr(after_last_slash(path));
}

bool names_directory(std::string_view address) {
  const std::string_view path = address.substr(0, path_length(address));
  return path.ends_with('/') || names_file_of_directory(path);
}

Place place_of(std::string_view address) {
  const std::string_view path = address.substr(0, path_length(address));
  Place place{std::string(path), std::string(address.substr(path.size()))};
  if (names_file_of_directory(path)) {
    place.directory.resize(after_last_slash(path));
  } else if (!path.empty() && !path.ends_with('/')) {
    place.directory += '/';
  }
  return place;
}

std::string_view base_name(std::string_view address) {
  const std::string_view path = address.substr(0, path_length(address));
  return path.substr(after_last_slash(path));
}

std::string split_name(std::string_view name, uint32_t index, uint32_t count) {
  const std::string_view path = name.substr(0, path_length(name));
  const size_t at = find_split_suffix(path);
  if (at == std::string_view::npos || index >= count || count > gguf::kMaxSplits) return {};
  if (five_digits(path.substr(at + 10)) != count) return {};
  char suffix[32];
  std::snprintf(suffix, sizeof suffix, "-%05u-of-%05u.gguf", index + 1, count);
  return std::string(path.substr(0, at)).append(suffix).append(name.substr(path.size()));
}

std::string first_part(std::string_view name) {
  const std::string_view path = name.substr(0, path_length(name));
  const size_t at = find_split_suffix(path);
  return at == std::string_view::npos ? std::string()
                                      : split_name(name, 0, five_digits(path.substr(at + 10)));
}

}  // namespace sluice::open

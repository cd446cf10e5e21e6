// These rules work on the text of an address, so they hold even for addresses that cannot be
// parsed.
#include "io/address.h"

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <string_view>
#include <vector>

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

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Whether `name` contains `word` where `ending` does not follow, or `but` follows that.
bool has(std::string_view name, std::string_view word, std::string_view ending = {},
         std::string_view but = {}) {
  for (size_t at = name.find(word); at != name.npos; at = name.find(word, at + 1)) {
    const std::string_view rest = name.substr(at + word.size());
    if (ending.empty() || !rest.starts_with(ending)) return true;
    if (!but.empty() && rest.substr(ending.size()).starts_with(but)) return true;
  }
  return false;
}

// The name of a parameter in small letters, without - and _.
std::string parameter_name(std::string_view parameter) {
  std::string name;
  for (const char c : parameter.substr(0, parameter.find('='))) {
    if (c == '-' || c == '_') continue;
    name += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return name;
}

bool is_secret(std::string_view name) {
  if (is_one_of(name, {"sig", "sign", "hmac", "jwt", "hdnts", "hdnea", "hdntl", "qak"})) {
    return true;
  }
  for (const char* start :
       {"qsign", "qkeytime", "qheaderlist", "qurlparamlist", "xamz", "xgoog", "xoss", "xcos",
        "xobs", "xtos", "xxet", "responsecontent", "responsecache"}) {
    if (name.starts_with(start)) return true;
  }
  for (const char* word : {"signature", "secret", "passw", "credential", "policy", "expire",
                           "apikey", "accesskey", "accessid", "keypair"}) {
    if (has(name, word)) return true;
  }
  return has(name, "token", "iz") || has(name, "auth", "or", "iz");
}

// Short names, which belong to a signature only beside a parameter that shows one.
bool is_beside_secret(std::string_view name, const std::vector<std::string>& names) {
  const auto beside = [&](auto&& shows) { return std::any_of(names.begin(), names.end(), shows); };
  if (is_one_of(name, {"se",    "si",    "sp",   "sr",      "st",       "sv",   "sdd",   "sip",
                       "spr",   "scid",  "ske",  "sks",     "skt",      "skv",  "skoid", "sktid",
                       "saoid", "suoid", "rscc", "rscd",    "rsce",     "rscl", "rsct",  "exp",
                       "acl",   "t",     "xid",  "keyname", "urlprefix"}) &&
      beside([](const std::string& other) {
        return has(other, "signature") || is_one_of(other, {"sig", "sign", "hmac"});
      })) {
    return true;
  }
  if (name == "md5") {
    return beside([](const std::string& other) {
      return has(other, "expire") || is_one_of(other, {"e", "exp"});
    });
  }
  if (name == "e") {
    return beside([](const std::string& other) {
      return has(other, "token") || is_one_of(other, {"st", "md5"});
    });
  }
  return name == "st" && beside([](const std::string& other) { return other == "e"; });
}

// Asks the server for a download, of the same file.
bool asks_to_download(std::string_view parameter) {
  std::string text(parameter);
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return is_one_of(text, {"download", "download=", "download=true", "download=1"});
}

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  const char small = static_cast<char>(c | 0x20);
  return small >= 'a' && small <= 'f' ? small - 'a' + 10 : -1;
}

// One spelling of percent-encodings: only characters that need it, with capital digits.
std::string encoded_once(std::string_view url) {
  constexpr std::string_view kPlain = "!$'()*,-._:@~";
  constexpr std::string_view kUnsafe = "\"<>^`{|}";
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  const auto encode = [&out](unsigned byte) {
    out.append({'%', kDigits[byte >> 4], kDigits[byte & 15]});
  };
  for (size_t i = 0; i < url.size(); ++i) {
    const auto byte = static_cast<unsigned char>(url[i]);
    const int high = url[i] == '%' && i + 2 < url.size() ? hex_digit(url[i + 1]) : -1;
    const int low = high >= 0 ? hex_digit(url[i + 2]) : -1;
    if (low >= 0) {
      const char c = static_cast<char>(16 * high + low);
      const char small = static_cast<char>(c | 0x20);
      const bool plain = is_digit(c) || (small >= 'a' && small <= 'z') ||
                         (c != '\0' && kPlain.find(c) != kPlain.npos);
      if (plain) out += c;
      if (!plain) encode(static_cast<unsigned>(16 * high + low));
      i += 2;
    } else if (byte <= ' ' || byte > '~' || kUnsafe.find(url[i]) != kUnsafe.npos) {
      encode(byte);
    } else {
      out += url[i];
    }
  }
  return out;
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

std::string public_source(const std::string& path_or_url) {
  const bool url = path_or_url.find("://") != std::string::npos;
  return url ? public_address(path_or_url) : path_or_url;
}

std::string stored_address(const std::string& url) {
  std::string plain = without_user(url);
  plain.erase(std::min(plain.find('#'), plain.size()));
  plain = encoded_once(plain);
  const size_t question = plain.find('?');
  if (question == std::string::npos) return plain;
  std::vector<std::string_view> parts;
  std::vector<std::string> names;
  for (size_t at = question + 1; at <= plain.size();) {
    const size_t end = std::min(plain.find('&', at), plain.size());
    parts.push_back(std::string_view(plain).substr(at, end - at));
    names.push_back(parameter_name(parts.back()));
    at = end + 1;
  }
  std::string kept = plain.substr(0, question);
  char separator = '?';
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].empty() || asks_to_download(parts[i]) || is_secret(names[i]) ||
        is_beside_secret(names[i], names)) {
      continue;
    }
    kept += separator;
    kept += parts[i];
    separator = '&';
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

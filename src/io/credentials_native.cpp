// Checks what becomes part of a request's header, so that no value can add another line.
#include "io/credentials_native.h"

#include <algorithm>

#include "io/http_response.h"
#include "platform/process.h"

namespace sluice::io {

namespace {

constexpr size_t kMaxValue = 8 << 10;
constexpr size_t kMaxHeaders = 64;

bool is_visible(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte == '\t' || (byte >= ' ' && byte != 0x7f);
  });
}

bool is_name(std::string_view name) {
  constexpr std::string_view kSigns = "!#$%&'*+-.^_`|~";  // RFC 9110
  return !name.empty() && std::all_of(name.begin(), name.end(), [&](char c) {
    const char small = static_cast<char>(c | 0x20);
    return (c >= '0' && c <= '9') || (small >= 'a' && small <= 'z') ||
           kSigns.find(c) != kSigns.npos;
  });
}

Status check_header(const std::string& header) {
  const size_t colon = header.find(':');
  const std::string name = header.substr(0, colon);
  if (colon == std::string::npos || !is_name(name) || !is_visible(header) ||
      header.size() > kMaxValue) {
    return error(Code::kInvalidArgument, "a header is not of the form \"Name: value\"%s%.40s",
                 colon != std::string::npos && is_name(name) ? ": " : "",
                 colon != std::string::npos && is_name(name) ? name.c_str() : "");
  }
  for (const char* own : {"range", "if-range", "accept-encoding", "content-length",
                          "transfer-encoding", "connection"}) {
    if (lower(name) == own) {
      return error(Code::kInvalidArgument, "the header %s is set by the program itself",
                   name.c_str());
    }
  }
  return {};
}

}  // namespace

Result<Credentials> make_credentials(std::vector<std::string> headers, const std::string& token,
                                     const std::string& hub,
                                     const std::function<std::string(const char*)>& variable) {
  if (headers.size() > kMaxHeaders) {
    return error(Code::kInvalidArgument, "there are more than %zu headers", kMaxHeaders);
  }
  for (const std::string& header : headers) SLUICE_RETURN_IF_ERROR(check_header(header));
  Credentials out;
  out.headers = std::move(headers);
  out.token = token.empty() ? variable("HF_TOKEN") : token;
  while (out.token.ends_with('\n') || out.token.ends_with('\r')) out.token.pop_back();
  if (!is_visible(out.token) || out.token.find(' ') != std::string::npos ||
      out.token.size() > kMaxValue) {
    return error(Code::kInvalidArgument, "the Hugging Face token has characters that no token has");
  }
  const std::string given = hub.empty() ? variable("HF_ENDPOINT") : hub;
  if (given.empty()) return out;
  const std::string start = lower(given.substr(0, 8));
  const bool plain = given.find_first_of("?#@ ") == std::string::npos && is_visible(given);
  if (!plain || (!start.starts_with("http://") && !start.starts_with("https://"))) {
    return error(Code::kInvalidArgument,
                 "the Hugging Face endpoint is not an address such as https://huggingface.co");
  }
  out.hub = given.substr(0, given.find_last_not_of('/') + 1);
  return out;
}

Result<Credentials> make_credentials(std::vector<std::string> headers, const std::string& token,
                                     const std::string& hub) {
  return make_credentials(std::move(headers), token, hub, platform::environment);
}

}  // namespace sluice::io

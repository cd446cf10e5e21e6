// Fetches a small file from a URL that a stranger has given, such as a picture in a request to a
// server. The stranger must not reach through the server what only the server can: each connection
// is judged by its address before it is made, of redirects too. No proxy, no credentials.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "io/public_address.h"

namespace sluice::io {

struct GuardedFetch {
  size_t max_bytes = 16u << 20;
  int timeout_ms = 20'000;  // for the whole of it
  int max_redirects = 3;
  // Whether a connection to an IPv4 (4 bytes) or IPv6 (16) address may be made.
  std::function<bool(std::span<const uint8_t>)> allows = is_public_address;
  std::function<bool()> cancelled = nullptr;
};

// Errors: kInvalidArgument (not http or https, an address that is not allowed, too large),
// kHttpStatus, kNetwork, kAborted; kNotSupported in builds without HTTP.
[[nodiscard]] Result<std::vector<uint8_t>> fetch_guarded(const std::string& url,
                                                         const GuardedFetch& guard);

}  // namespace sluice::io

#include "io/address.h"
#include "io/guarded_fetch.h"

#if !defined(SLUICE_NO_HTTP)
#include <curl/curl.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <span>

#include "platform/socket.h"
#endif

namespace sluice::io {

#if defined(SLUICE_NO_HTTP)

Result<std::vector<uint8_t>> fetch_guarded(const std::string& url, const GuardedFetch&) {
  return error(Code::kNotSupported, "%s: this build has no HTTP",
               public_address(url).substr(0, 200).c_str());
}

#else

namespace {

struct Fetch {
  const GuardedFetch& guard;
  std::vector<uint8_t> bytes;
  bool too_large = false, refused = false;
};

// The bytes of a socket's address, which begins with its family and port; IPv6 has a flow label
// before them.
bool is_allowed(const GuardedFetch& guard, const curl_sockaddr& address) {
  uint8_t raw[sizeof address.addr + 16] = {};
  const size_t size = std::min<size_t>(address.addrlen, sizeof raw);
  std::memcpy(raw, &address.addr, size);
  const std::span<const uint8_t> bytes(raw, size);
  if (address.family == AF_INET && size >= 8) return guard.allows(bytes.subspan(4, 4));
  if (address.family == AF_INET6 && size >= 24) return guard.allows(bytes.subspan(8, 16));
  return false;
}

curl_socket_t open_socket(void* user, curlsocktype, curl_sockaddr* address) {
  auto* fetch = static_cast<Fetch*>(user);
  if (!is_allowed(fetch->guard, *address)) {
    fetch->refused = true;
    return CURL_SOCKET_BAD;
  }
  return static_cast<curl_socket_t>(
      platform::open_socket(address->family, address->socktype, address->protocol));
}

size_t take(char* data, size_t size, size_t count, void* user) {
  auto* fetch = static_cast<Fetch*>(user);
  const size_t n = size * count;
  fetch->too_large = n > fetch->guard.max_bytes - fetch->bytes.size();
  if (fetch->too_large) return 0;
  fetch->bytes.insert(fetch->bytes.end(), data, data + n);
  return n;
}

int look(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  const GuardedFetch& guard = static_cast<Fetch*>(user)->guard;
  return guard.cancelled && guard.cancelled() ? 1 : 0;
}

void set_up(CURL* e, const std::string& url, Fetch* fetch) {
  const GuardedFetch& guard = fetch->guard;
  curl_easy_setopt(e, CURLOPT_URL, url.c_str());
  curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(e, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(e, CURLOPT_PROXY, "");  // the address that counts is the server's
  curl_easy_setopt(e, CURLOPT_OPENSOCKETFUNCTION, &open_socket);
  curl_easy_setopt(e, CURLOPT_OPENSOCKETDATA, fetch);
  curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(e, CURLOPT_MAXREDIRS, static_cast<long>(guard.max_redirects));
  curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, static_cast<long>(guard.timeout_ms));
  curl_easy_setopt(e, CURLOPT_MAXFILESIZE_LARGE, static_cast<curl_off_t>(guard.max_bytes));
  curl_easy_setopt(e, CURLOPT_USERAGENT, "sluice");
  curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, &take);
  curl_easy_setopt(e, CURLOPT_WRITEDATA, fetch);
  curl_easy_setopt(e, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(e, CURLOPT_XFERINFOFUNCTION, &look);
  curl_easy_setopt(e, CURLOPT_XFERINFODATA, fetch);
}

Status conclude(CURLcode code, long status, const Fetch& fetch, const std::string& name) {
  if (fetch.too_large || code == CURLE_FILESIZE_EXCEEDED) {
    return error(Code::kInvalidArgument, "%s has more than %zu bytes", name.c_str(),
                 fetch.guard.max_bytes);
  }
  if (code == CURLE_ABORTED_BY_CALLBACK) {
    return error(Code::kAborted, "the read of %s was aborted", name.c_str());
  }
  if (code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_URL_MALFORMAT) {
    return error(Code::kInvalidArgument, "%s: only http and https addresses are supported",
                 name.c_str());
  }
  if (code != CURLE_OK && fetch.refused) {
    return error(Code::kInvalidArgument, "%s leads to an address that is not public", name.c_str());
  }
  if (code != CURLE_OK) {
    return error(Code::kNetwork, "%s: %s", name.c_str(), curl_easy_strerror(code));
  }
  if (status != 200) return error(Code::kHttpStatus, "%s: HTTP status %ld", name.c_str(), status);
  return {};
}

}  // namespace

Result<std::vector<uint8_t>> fetch_guarded(const std::string& url, const GuardedFetch& guard) {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
  const std::string name = public_address(url).substr(0, 200);
  CURL* const e = curl_easy_init();
  if (e == nullptr) return error(Code::kOutOfMemory, "libcurl could not start a request");
  Fetch fetch{guard, {}};
  set_up(e, url, &fetch);
  const CURLcode code = curl_easy_perform(e);
  long status = 0;
  curl_easy_getinfo(e, CURLINFO_RESPONSE_CODE, &status);
  curl_easy_cleanup(e);
  SLUICE_RETURN_IF_ERROR(conclude(code, status, fetch, name));
  return std::move(fetch.bytes);
}

#endif

}  // namespace sluice::io

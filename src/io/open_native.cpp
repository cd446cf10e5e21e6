// Opens paths and URLs. A build without libcurl (SLUICE_NO_HTTP, used for tests under an emulator)
// supports files only.
#include "io/address.h"
#include "io/byte_source.h"

namespace sluice::io {

#if defined(SLUICE_NO_HTTP)
Result<RemoteText> fetch_text(const std::string&, size_t, const OpenOptions&) {
  return error(Code::kInvalidArgument, "this build supports local files only");
}
std::vector<CachedModel> cached_models(const std::string&) {
  return {};
}
#endif

Result<std::unique_ptr<ByteSource>> open_source(const std::string& path_or_url,
                                                [[maybe_unused]] const OpenOptions& options) {
  const size_t colon = path_or_url.find("://");
  if (colon == std::string::npos) return open_file(path_or_url, options);
  std::string scheme = path_or_url.substr(0, colon);
  for (char& c : scheme) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  if (scheme == "http" || scheme == "https") {
#if defined(SLUICE_NO_HTTP)
    return error(Code::kInvalidArgument, "this build supports local files only");
#else
    return open_http(path_or_url, options);
#endif
  }
  if (scheme == "file") return open_file(path_or_url.substr(colon + 3), options);
  return error(Code::kInvalidArgument, "%s: only http and https addresses are supported",
               public_address(path_or_url).substr(0, 200).c_str());
}

}  // namespace sluice::io

// Makes URLs safe for messages and for the cache. A message shows no user, password or query. The
// cache key of a file has everything that identifies it except signatures, which change over time
// and are secret. web/protocol/address.ts has the same rules for the package.
#pragma once

#include <string>

namespace sluice::io {

// For messages: no user, no password, no query, no fragment.
[[nodiscard]] std::string public_address(const std::string& url);
// The same for what may be a path, which stays as it is.
[[nodiscard]] std::string public_source(const std::string& path_or_url);
// The cache key: without user, password and fragment, with one spelling of percent-encodings. Query
// parameters stay unless they belong to a signature, are secret, or ask for a download.
// tests/data/addresses.json has examples.
[[nodiscard]] std::string stored_address(const std::string& url);
// The address of the model that a file belongs to: the Hugging Face directory, the first file of a
// split model, or the file itself.
[[nodiscard]] std::string model_address(const std::string& url);

}  // namespace sluice::io

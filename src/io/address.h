// Addresses as people and the cache may see them. A message shows neither user, password nor query;
// the cache knows a file by all that tells it apart, but not by a signature, which would be another
// one tomorrow and is a secret besides. web/protocol/address.ts has the same rules for the package.
#pragma once

#include <string>

namespace sluice::io {

// For messages: no user, no password, no query, no fragment.
[[nodiscard]] std::string public_address(const std::string& url);
// What the cache knows a file by: no user, no password, no fragment, and of the query what is no
// signature, token or the like.
[[nodiscard]] std::string stored_address(const std::string& url);
// The address that loads the model which a file is part of: a Hugging Face directory's, the first
// part's of a split one, or the file's own.
[[nodiscard]] std::string model_address(const std::string& url);

}  // namespace sluice::io

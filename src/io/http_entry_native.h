// The cache entry of a file on a server.
#pragma once

#include <memory>
#include <string>

#include "io/cache_native.h"
#include "io/http_client_native.h"

namespace sluice::io {

// The entry of the file that the server has. If it is a new version, creates its entry, provided
// that it looks like a model where the cache has one. Errors: kNetwork if it does not; kIo if the
// cache cannot be used.
[[nodiscard]] Result<std::unique_ptr<ChunkStore>> open_entry(HttpClient& client,
                                                             const std::string& url,
                                                             const OpenOptions& options,
                                                             uint64_t limit);
// A complete version of the file; null if there is none.
[[nodiscard]] std::unique_ptr<ChunkStore> open_complete(const std::string& dir,
                                                        const std::string& url);

}  // namespace sluice::io

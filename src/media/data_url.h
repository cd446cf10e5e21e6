// Pictures inside of requests: data URLs in base64 (RFC 2397, RFC 4648).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sluice::media {

[[nodiscard]] bool is_data_url(std::string_view url);

// The bytes of a data URL in base64, of either alphabet, with or without padding. The media type is
// not looked at: files say themselves what they are. Errors: kInvalidArgument (not base64, or more
// than max_bytes, which is checked before anything is allocated).
[[nodiscard]] Result<std::vector<uint8_t>> read_data_url(std::string_view url, size_t max_bytes);

}  // namespace sluice::media

// Converts between UTF-8, used for all paths here, and the UTF-16 of Windows.
#pragma once

#include <string>

namespace sluice::platform {

// Invalid UTF-8 becomes U+FFFD, which no file name contains.
[[nodiscard]] std::wstring to_wide(const std::string& text);
[[nodiscard]] std::string from_wide(const std::wstring& text);

}  // namespace sluice::platform

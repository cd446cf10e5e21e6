// UTF-8, in which every path here is, to and from Windows' UTF-16.
#pragma once

#include <string>

namespace sluice::platform {

// What is no UTF-8 becomes U+FFFD, which no file's name has.
[[nodiscard]] std::wstring to_wide(const std::string& text);
[[nodiscard]] std::string from_wide(const std::wstring& text);

}  // namespace sluice::platform

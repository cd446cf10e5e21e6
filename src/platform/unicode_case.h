// Case conversion by the system's Unicode tables.
#pragma once

#include <cstdint>

namespace sluice::platform {

// The upper case of a character, if that is a single character; otherwise the character itself.
[[nodiscard]] uint32_t upper_case(uint32_t code_point);

}  // namespace sluice::platform

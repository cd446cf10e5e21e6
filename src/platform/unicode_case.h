// The one question about Unicode that the system's own tables answer well enough.
#pragma once

#include <cstdint>

namespace sluice::platform {

// The character in upper case, where that is one character; otherwise itself.
[[nodiscard]] uint32_t upper_case(uint32_t code_point);

}  // namespace sluice::platform

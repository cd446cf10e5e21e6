// Whether this test program runs under a sanitizer (SLUICE_SANITIZED, from CMakeLists.txt). It is
// then about ten times slower and has its own malloc.
#pragma once

namespace sluice::test {

#ifdef SLUICE_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace sluice::test

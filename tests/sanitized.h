// Whether this test program runs under a sanitizer (SLUICE_SANITIZED, by CMakeLists.txt): about ten
// times slower, with a malloc of its own.
#pragma once

namespace sluice::test {

#ifdef SLUICE_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace sluice::test

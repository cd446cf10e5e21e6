// Whether this test program runs under a sanitizer: about ten times slower, with a malloc of its
// own.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#ifndef SLUICE_SANITIZED
#define SLUICE_SANITIZED
#endif
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SLUICE_SANITIZED
#endif
#endif

namespace sluice::test {

#ifdef SLUICE_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace sluice::test

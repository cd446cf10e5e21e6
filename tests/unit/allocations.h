// What operator new hands out in this test program, counted by allocations_util.cpp while a test
// asks; nothing where a sanitizer has its own.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLUICE_OWN_MALLOC 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SLUICE_OWN_MALLOC 1
#endif
#endif

namespace sluice::test {

struct Allocations {
  bool on = false;
  uint64_t count = 0;
  size_t now = 0, peak = 0;  // bytes
};
extern thread_local Allocations allocations;

}  // namespace sluice::test

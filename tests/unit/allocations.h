// What operator new hands out in this test program, counted by allocations_util.cpp while a test
// asks; nothing where a sanitizer has its own.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../sanitized.h"

namespace sluice::test {

struct Allocations {
  bool on = false;
  uint64_t count = 0;
  size_t now = 0, peak = 0;  // bytes
};
extern thread_local Allocations allocations;

}  // namespace sluice::test

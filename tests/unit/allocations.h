// Counts what operator new allocates in this test program, while a test asks
// (allocations_util.cpp). Counts nothing under sanitizers, which have their own operator new.
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

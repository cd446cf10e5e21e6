// Which suite runs, as in extent.mjs.
#pragma once

#include <cstdlib>

namespace sluice::test {

// Whether the long suite runs.
inline bool long_suite() {
  return std::getenv("SLUICE_TEST_ALL") != nullptr;
}

// `few` in the short suite, `many` in the long one.
inline int extent(int few, int many) {
  return long_suite() ? many : few;
}

}  // namespace sluice::test

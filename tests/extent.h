// How far tests go: `npm test` runs the short suite, `npm run test:all` the long one, with
// SLUICE_TEST_ALL=1 in the environment (for scripts: extent.mjs).
#pragma once

#include <cstdlib>
#include <cstring>

namespace sluice::test {

inline bool all_tests() {
  const char* all = std::getenv("SLUICE_TEST_ALL");
  return all != nullptr && std::strcmp(all, "1") == 0;
}

}  // namespace sluice::test

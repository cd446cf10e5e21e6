#include "paths.h"

#include <cstdlib>

namespace sluice::test {

namespace {

// Tests do not write to the user's model cache. Windows programs have none.
#if !defined(_WIN32)
[[maybe_unused]] const int no_cache = ::setenv("SLUICE_CACHE", "none", 1);
#endif

}  // namespace

std::string source_dir() {
  return SLUICE_SOURCE_DIR;
}

std::string shared_dir() {
  return source_dir() + "/../shared";
}

std::string program_path(const std::string& name) {
  return SLUICE_BUILD_DIR "/" + name;
}

}  // namespace sluice::test

#include "paths.h"

namespace sluice::test {

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

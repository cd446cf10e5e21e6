// Windows: no program is started, because nothing but `sluice compare` with llama.cpp needs it.
#include "platform/program.h"

namespace sluice::platform {

std::string find_program(const std::string&, const std::string&) {
  return {};
}

bool run_program(const std::string&, const std::vector<std::string>&, ProcessResult*) {
  return false;
}

}  // namespace sluice::platform

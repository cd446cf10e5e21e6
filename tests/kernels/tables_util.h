// The kernel tables that this machine can run, without the one that SLUICE_WITHOUT_TABLE names:
// under emulation the short suite has no scalar one, which the native tests run.
#pragma once

#include <cstdlib>
#include <string_view>
#include <vector>

#include "kernels/kernels.h"

namespace sluice::kernels {

inline std::vector<const Table*> tables() {
  const char* without = std::getenv("SLUICE_WITHOUT_TABLE");
  std::vector<const Table*> all;
  for (const char* const* name = available(); *name != nullptr; ++name) {
    if (without == nullptr || std::string_view(without) != *name) all.push_back(by_name(*name));
  }
  return all;
}

}  // namespace sluice::kernels

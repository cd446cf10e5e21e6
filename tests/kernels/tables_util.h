// The kernel tables that this machine can run.
#pragma once

#include <vector>

#include "kernels/kernels.h"

namespace sluice::kernels {

inline std::vector<const Table*> tables() {
  std::vector<const Table*> all;
  for (const char* const* name = available(); *name != nullptr; ++name)
    all.push_back(by_name(*name));
  return all;
}

}  // namespace sluice::kernels

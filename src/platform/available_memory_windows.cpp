// Windows.
#include <windows.h>

#include "platform/available_memory.h"

namespace sluice::platform {

uint64_t available_memory() {
  MEMORYSTATUSEX status{};
  status.dwLength = sizeof status;
  return GlobalMemoryStatusEx(&status) != 0 ? status.ullAvailPhys : 0;
}

}  // namespace sluice::platform

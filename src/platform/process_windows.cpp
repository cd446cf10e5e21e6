// Windows.
#include <windows.h>

#include "platform/process.h"
#include "platform/wide.h"

namespace sluice::platform {

System current_system() {
  return System::kWindows;
}

int64_t process_id() {
  return GetCurrentProcessId();
}

bool process_alive(int64_t id) {
  HANDLE process = OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION, FALSE, static_cast<DWORD>(id));
  if (process == nullptr) return GetLastError() == ERROR_ACCESS_DENIED;
  DWORD status = 0;
  const bool runs = GetExitCodeProcess(process, &status) != 0 && status == STILL_ACTIVE;
  CloseHandle(process);
  return runs;
}

std::string host_name() {
  char text[256] = "";
  DWORD length = sizeof text;
  const bool known = GetComputerNameExA(ComputerNameDnsHostname, text, &length) != 0;
  return known ? plain_host_name(text) : "";
}

std::string environment(const char* name) {
  wchar_t value[4096];
  const DWORD length = GetEnvironmentVariableW(to_wide(name).c_str(), value, 4096);
  return length > 0 && length < 4096 ? from_wide(value) : "";
}

}  // namespace sluice::platform

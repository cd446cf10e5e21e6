// Linux and macOS.
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "platform/process.h"

namespace sluice::platform {

System current_system() {
#if defined(__APPLE__)
  return System::kMac;
#else
  return System::kLinux;
#endif
}

int64_t process_id() {
  return ::getpid();
}

bool process_alive(int64_t id) {
  return id > 0 && (::kill(static_cast<pid_t>(id), 0) == 0 || errno == EPERM);
}

std::string host_name() {
  char text[256] = "";
  return ::gethostname(text, sizeof text - 1) == 0 ? plain_host_name(text) : "";
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace sluice::platform

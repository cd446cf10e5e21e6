// Linux, from /proc and the limits of cgroups. Unknown on macOS.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

#include "platform/available_memory.h"

namespace sluice::platform {
namespace {

// The number in a file such as memory.max; UINT64_MAX if there is none.
uint64_t limit_in(const std::string& path) {
  std::ifstream file(path);
  uint64_t bytes = 0;
  return file >> bytes ? bytes : UINT64_MAX;
}

// The least limit of a cgroup and those that contain it.
uint64_t limit_of(const std::string& root, std::string group, const char* file) {
  uint64_t least = UINT64_MAX;
  for (;;) {
    least = std::min(least, limit_in(root + group + file));
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos) return least;
    group.resize(slash);
  }
}

// A line of /proc/self/cgroup is "0::/GROUP" in version 2, "N:CONTROLLERS:/GROUP" in version 1.
uint64_t cgroup_limit() {
  std::ifstream groups("/proc/self/cgroup");
  uint64_t least = UINT64_MAX;
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      least = std::min(least, limit_of("/sys/fs/cgroup", group, "/memory.max"));
    } else if (controllers == "memory") {
      least = std::min(least, limit_of("/sys/fs/cgroup/memory", group, "/memory.limit_in_bytes"));
    }
  }
  return least;
}

}  // namespace

uint64_t available_memory() {
  std::ifstream info("/proc/meminfo");
  for (std::string key; info >> key;) {
    uint64_t kilobytes = 0;
    if (key == "MemAvailable:" && info >> kilobytes) {
      return std::min(kilobytes << 10, cgroup_limit());
    }
    std::getline(info, key);
  }
  return 0;
}

}  // namespace sluice::platform

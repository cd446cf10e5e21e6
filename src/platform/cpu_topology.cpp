// Counts the processors that this process may use; each system has its own way.
#include <algorithm>

#include "platform/threads.h"

#if defined(__EMSCRIPTEN__)
#include <emscripten/threading.h>
#elif defined(__linux__)
#include <sched.h>

#include <cstdio>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(_WIN32)
#include <windows.h>

#include <bit>
#include <vector>
#else
#include <unistd.h>
#endif

namespace sluice::platform {

#if defined(__EMSCRIPTEN__)
int usable_cpus(bool logical) {
#if defined(__EMSCRIPTEN_PTHREADS__)
  const int n = std::max(emscripten_num_logical_cores(), 1);
  // A browser reports logical cores only. Above two, half of them are assumed to be SMT siblings or
  // efficiency cores, which would slow down every parallel region.
  return logical || n <= 2 ? n : std::max(2, n / 2);
#else
  static_cast<void>(logical);
  return 1;
#endif
}

#elif defined(__linux__)
namespace {

// An id of a logical CPU's physical core, or -1 where the kernel does not report it.
int core_of(int cpu) {
  int ids[2] = {0, 0};
  const char* const names[2] = {"physical_package_id", "core_id"};
  for (int i = 0; i < 2; ++i) {
    char path[96];
    std::snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, names[i]);
    std::FILE* file = std::fopen(path, "r");
    if (file == nullptr) return -1;
    const bool read = std::fscanf(file, "%d", &ids[i]) == 1;
    std::fclose(file);
    if (!read) return -1;
  }
  return ids[0] * 65536 + ids[1];
}

}  // namespace

int usable_cpus(bool logical) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  int cores[CPU_SETSIZE];
  int n = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    const int core = logical ? -1 : core_of(cpu);
    if (core >= 0 && std::find(cores, cores + n, core) != cores + n) continue;
    cores[n++] = core;
  }
  return std::max(n, 1);
}

#elif defined(__APPLE__)
// Where there are two kinds of cores, only performance cores count: efficiency cores would slow
// down every parallel region.
int usable_cpus(bool logical) {
  const char* const names[] = {logical ? "hw.logicalcpu" : "hw.perflevel0.physicalcpu",
                               "hw.physicalcpu"};
  for (const char* name : names) {
    int n = 0;
    size_t size = sizeof n;
    if (sysctlbyname(name, &n, &size, nullptr, 0) == 0 && n > 0) return n;
  }
  return 1;
}

#elif defined(_WIN32)
int usable_cpus(bool logical) {
  DWORD_PTR mine = 0, all = 0;
  if (GetProcessAffinityMask(GetCurrentProcess(), &mine, &all) == 0 || mine == 0) return 1;
  const int threads = std::popcount(static_cast<uint64_t>(mine));
  DWORD bytes = 0;
  GetLogicalProcessorInformation(nullptr, &bytes);
  std::vector<SYSTEM_LOGICAL_PROCESSOR_INFORMATION> all_of(bytes / sizeof all_of[0]);
  if (logical || all_of.empty() || GetLogicalProcessorInformation(all_of.data(), &bytes) == 0) {
    return threads;
  }
  const auto cores = std::count_if(all_of.begin(), all_of.end(), [mine](const auto& entry) {
    return entry.Relationship == RelationProcessorCore && (entry.ProcessorMask & mine) != 0;
  });
  return std::clamp(static_cast<int>(cores), 1, threads);
}

#else
int usable_cpus(bool) {
  const long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n < 1 ? 1 : static_cast<int>(std::min<long>(n, 1 << 16));
}
#endif

}  // namespace sluice::platform

#include "platform/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace sluice::platform {

#if defined(__x86_64__)
namespace {

bool has_f16c() {  // clang 14's __builtin_cpu_supports lacks this feature
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

}  // namespace

// __builtin_cpu_supports also checks XGETBV, so it covers both the CPU and the operating system.
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

bool has_pclmul() {
  return __builtin_cpu_supports("pclmul");
}

bool has_avx512vnni() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}

bool has_avx512vbmi() {
  return has_avx512vnni() && __builtin_cpu_supports("avx512vbmi");
}
#elif defined(__aarch64__)
bool has_dotprod() {
#if defined(__linux__)
  return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
  return true;  // every Apple and Windows machine of this kind has it
#endif
}

bool has_crc32() {
#if defined(__linux__)
  return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
#else
  return true;  // the same
#endif
}
#endif

}  // namespace sluice::platform

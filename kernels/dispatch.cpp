// Which table runs. Natively the CPU and the operating system (which must save the wide registers)
// are asked once; on wasm the module that loaded has already decided. Best first.
#include <cstring>

#include "kernels/isa/targets.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace sluice::kernels {
namespace {

struct Choice {
  const Table* table;
  bool (*runs_here)();
};

[[maybe_unused]] bool always() {
  return true;
}

#if defined(__x86_64__)
// __builtin_cpu_supports also checks XGETBV: it answers for the CPU and the system together.
bool has_f16c() {  // clang 14's __builtin_cpu_supports does not know this name
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}
bool has_avx512vnni() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}
constexpr Choice kChoices[] = {
    {&avx512vnni::kTable, has_avx512vnni}, {&avx2::kTable, has_avx2}, {&scalar::kTable, always}};
#elif defined(__aarch64__)
bool has_dotprod() {
#if defined(__linux__)
  return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
  return true;  // every Apple and Windows machine of this kind has it
#endif
}
constexpr Choice kChoices[] = {
    {&neondot::kTable, has_dotprod}, {&neon::kTable, always}, {&scalar::kTable, always}};
#elif defined(SLUICE_WASM_TABLE)    // the page has chosen a binary: web/worker/variant.ts
constexpr Choice kChoices[] = {{&SLUICE_WASM_TABLE::kTable, always}};
#elif defined(SLUICE_WASM_RELAXED)  // the kernels' tests hold both
constexpr Choice kChoices[] = {{&wasmrelaxed::kTable, always}, {&wasmrelaxed16::kTable, always}};
#elif defined(__wasm_simd128__)
constexpr Choice kChoices[] = {{&wasm128::kTable, always}};
#else
constexpr Choice kChoices[] = {{&scalar::kTable, always}};
#endif

constexpr int kCount = sizeof(kChoices) / sizeof(kChoices[0]);

}  // namespace

const Table* by_name(const char* name) {
  for (const Choice& choice : kChoices) {
    if (std::strcmp(choice.table->name, name) == 0 && choice.runs_here()) return choice.table;
  }
  return nullptr;
}

const Table& best() {
  for (const Choice& choice : kChoices) {
    if (choice.runs_here()) return *choice.table;
  }
  return *kChoices[kCount - 1].table;  // not reached: the last one always runs
}

const char* const* available() {
  static const char* names[kCount + 1];
  static const bool filled = [] {
    int n = 0;
    for (const Choice& choice : kChoices) {
      if (choice.runs_here()) names[n++] = choice.table->name;
    }
    return true;
  }();
  return filled ? names : nullptr;
}

}  // namespace sluice::kernels

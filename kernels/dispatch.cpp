// Which table runs. Natively the CPU and the operating system (which must save the wide registers)
// are asked once; on wasm the module that loaded has already decided. Best first.
#include <cstring>

#include "kernels/isa/targets.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(SLUICE_WASM_RELAXED)
#include "kernels/isa/relaxed_imports.h"
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
#elif defined(SLUICE_WASM_RELAXED)
// Both run everywhere with equal results; which is faster is a matter of the CPU behind the engine.
// WebAssembly does not say, but products outside what it promises do: where the four-way dot
// product is made of instructions that stop at 16-bit pairs, these saturate. One instruction does
// not.
bool stops_at_pairs() {
  volatile int8_t activation = 127, weight = -1;  // 255 to those who take it as unsigned
  const v128_t sums =
      relaxed_dot(wasm_i8x16_splat(activation), wasm_i8x16_splat(weight), wasm_i32x4_splat(0));
  return wasm_i32x4_extract_lane(sums, 0) == 2 * 32767;
}
bool goes_on() {
  return !stops_at_pairs();
}
constexpr Choice kChoices[] = {{&wasmrelaxed16::kTable, stops_at_pairs},
                               {&wasmrelaxed::kTable, always},
                               {&wasmrelaxed16::kTable, goes_on}};
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

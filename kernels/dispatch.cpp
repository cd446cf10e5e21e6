// Picks the kernel table. Natively the CPU and the operating system (which must save the wide
// registers) are asked once. On wasm the page has already chosen the binary, and the engine may not
// support it.
#include <cstring>

#include "kernels/isa/targets.h"
#include "kernels/isa/vbmi_decoders.h"
#include "platform/cpu_features.h"

namespace sluice::kernels {
namespace {

struct Choice {
  const Table* table;
  bool (*runs_here)();
};

[[maybe_unused]] bool always() {
  return true;
}

#if defined(SLUICE_COMMON_TYPES)
#define SLUICE_TABLE kCommonTable
#else
#define SLUICE_TABLE kTable
#endif

#if defined(__x86_64__)
constexpr Choice kChoices[] = {{&avx512vnni::kTable, platform::has_avx512vnni},
                               {&avx2::kTable, platform::has_avx2},
                               {&scalar::kTable, always}};
#elif defined(__aarch64__)
constexpr Choice kChoices[] = {
    {&neondot::kTable, platform::has_dotprod}, {&neon::kTable, always}, {&scalar::kTable, always}};
#elif defined(SLUICE_WASM_TABLE)    // the page chose the binary: web/worker/variant.ts
constexpr Choice kChoices[] = {{&SLUICE_WASM_TABLE::SLUICE_TABLE, SLUICE_WASM_TABLE::runs_here}};
#elif defined(SLUICE_WASM_RELAXED)  // a test program has both
constexpr Choice kChoices[] = {{&wasmrelaxed::kTable, wasmrelaxed::runs_here},
                               {&wasmrelaxed16::kTable, wasmrelaxed16::runs_here}};
#elif defined(__wasm_simd128__)
constexpr Choice kChoices[] = {{&wasm128::SLUICE_TABLE, always}};
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
  // The last entry always runs, or is the only one of a wasm binary; by_name() rejects that one.
  static const Table* const chosen = [] {
    for (const Choice& choice : kChoices) {
      if (choice.runs_here()) return choice.table;
    }
    return kChoices[kCount - 1].table;
  }();
  return *chosen;
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

#if defined(__x86_64__)
bool& avx512vbmi::enabled() {
  static bool value = platform::has_avx512vbmi();
  return value;
}
#endif

}  // namespace sluice::kernels

// The tables that a build may contain, one per isa/<target>.cpp; dispatch.cpp knows which it has.
#pragma once

#include "kernels/kernels.h"

namespace sluice::kernels {
namespace scalar {
extern const Table kTable;
}
namespace avx2 {
extern const Table kTable;
}
namespace avx512vnni {
extern const Table kTable;
}
namespace neon {
extern const Table kTable;
}
namespace neondot {
extern const Table kTable;
}
// On wasm, kCommonTable lacks the types of few files: SLUICE_DECODED_TYPE and SLUICE_QSF_TYPE.
namespace wasm128 {
extern const Table kTable;
extern const Table kCommonTable;
}  // namespace wasm128
namespace wasmrelaxed {
extern const Table kTable;
extern const Table kCommonTable;
[[nodiscard]] bool runs_here();  // the dot product behaves as one instruction beyond 0..127
}  // namespace wasmrelaxed
namespace wasmrelaxed16 {
extern const Table kTable;
extern const Table kCommonTable;
[[nodiscard]] bool runs_here();
}  // namespace wasmrelaxed16
}  // namespace sluice::kernels

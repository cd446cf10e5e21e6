// Instruction sets that the processor supports and whose registers the operating system saves. Only
// features that differ between machines of one target are listed.
#pragma once

namespace sluice::platform {

#if defined(__x86_64__)
[[nodiscard]] bool has_avx2();  // with FMA and F16C
[[nodiscard]] bool has_pclmul();
[[nodiscard]] bool has_avx512vnni();  // with F, BW, VL, DQ and all that AVX2 has
[[nodiscard]] bool has_avx512vbmi();  // with all that AVX-512 VNNI has
#elif defined(__aarch64__)
[[nodiscard]] bool has_dotprod();
[[nodiscard]] bool has_crc32();
#endif

}  // namespace sluice::platform

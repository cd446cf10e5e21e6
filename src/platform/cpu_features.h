// What the processor can do and the operating system saves the registers of. Only answers that
// differ between machines of one target are asked for.
#pragma once

namespace sluice::platform {

#if defined(__x86_64__)
[[nodiscard]] bool has_avx2();        // with FMA and F16C
[[nodiscard]] bool has_avx512vnni();  // with F, BW, VL, DQ and all that AVX2 has
#elif defined(__aarch64__)
[[nodiscard]] bool has_dotprod();
#endif

}  // namespace sluice::platform

// Memory from the system. Where it maps pages for the asking (Linux), large buffers are mappings of
// their own: what a smaller budget frees is the system's again at once, whatever else lives in the
// process's heap. Elsewhere its allocator does that by itself.
#pragma once

#include <cstddef>

namespace sluice::platform {

// `bytes` at a multiple of 64; null when the platform refuses. `bytes` is at most SIZE_MAX - 63.
// release() takes the size that was asked for.
[[nodiscard]] void* reserve(size_t bytes);
void release(void* memory, size_t bytes);

// Whether discard() gives the pages of a part of a buffer back.
#if defined(__linux__) && !defined(__EMSCRIPTEN__)
inline constexpr bool kDiscards = true;
#else
inline constexpr bool kDiscards = false;
#endif
// The pages that lie within are the system's again; what is read there from now on is undefined.
void discard(void* memory, size_t bytes);

}  // namespace sluice::platform

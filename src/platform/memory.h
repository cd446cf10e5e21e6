// Memory from the system. On Linux, large buffers are memory mappings of their own. Memory that a
// smaller budget frees then returns to the system at once, however fragmented the heap is. On other
// systems the allocator does this by itself.
#pragma once

#include <cstddef>

namespace sluice::platform {

// Returns `bytes` of memory at a multiple of 64, or null when the platform refuses. `bytes` is at
// most SIZE_MAX - 63. release() takes the same size.
[[nodiscard]] void* reserve(size_t bytes);
void release(void* memory, size_t bytes);

// Whether discard() returns pages of a part of a buffer to the system.
#if defined(__linux__) && !defined(__EMSCRIPTEN__)
inline constexpr bool kDiscards = true;
#else
inline constexpr bool kDiscards = false;
#endif
// Returns the whole pages inside the range to the system. Their contents are undefined afterwards.
void discard(void* memory, size_t bytes);

}  // namespace sluice::platform

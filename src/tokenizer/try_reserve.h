// Reserves memory for containers, and reports a failure. The engine has no exceptions, and a failed
// allocation at the browser's hard limit would abort the program. So the allocation is tried first.
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/aligned.h"

namespace sluice::tokenizer {

[[nodiscard]] inline bool has_room(size_t bytes) {
  AlignedBuffer probe;
  return probe.allocate(bytes).ok();
}

// Reserves capacity for `n` elements. False when memory is out; the container is then unchanged.
template <typename Container>
[[nodiscard]] bool make_room(Container* container, size_t n) {
  if (n <= container->capacity()) return true;
  constexpr size_t kSpare = 64;  // rounding of the container and the allocator
  if (!has_room(n * sizeof(*container->data()) + kSpare)) return false;
  container->reserve(n);
  return true;
}

// The same for a container whose contents are no longer needed: frees the old memory first.
template <typename Container>
[[nodiscard]] bool renew_room(Container* container, size_t n) {
  container->clear();
  if (n <= container->capacity()) return true;
  *container = Container();
  return make_room(container, n);
}

// Reserves capacity for `more` additional elements, growing by doubling.
template <typename Container>
[[nodiscard]] bool make_room_for(Container* container, size_t more) {
  const size_t need = container->size() + more;
  if (need <= container->capacity()) return true;
  return make_room(container, std::max(need, 2 * container->capacity()));
}

}  // namespace sluice::tokenizer

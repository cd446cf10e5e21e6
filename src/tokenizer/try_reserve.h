// Growing a container only where memory allows it: the engine has no exceptions, and inside a
// browser's hard limit a failed allocation would end the program, so it is asked for first.
#pragma once

#include <algorithm>
#include <cstddef>

#include "base/aligned.h"

namespace sluice::tokenizer {

[[nodiscard]] inline bool has_room(size_t bytes) {
  AlignedBuffer probe;
  return probe.allocate(bytes).ok();
}

// Capacity for `n` elements. False when memory is out; the container is as it was then.
template <typename Container>
[[nodiscard]] bool make_room(Container* container, size_t n) {
  if (n <= container->capacity()) return true;
  constexpr size_t kSpare = 64;  // what the container and the allocator may round up by
  if (!has_room(n * sizeof(*container->data()) + kSpare)) return false;
  container->reserve(n);
  return true;
}

// The same, of a container whose content is no longer needed: the old memory goes first.
template <typename Container>
[[nodiscard]] bool renew_room(Container* container, size_t n) {
  container->clear();
  if (n <= container->capacity()) return true;
  *container = Container();
  return make_room(container, n);
}

// Capacity for `more` elements behind those that are there, growing by doubling.
template <typename Container>
[[nodiscard]] bool make_room_for(Container* container, size_t more) {
  const size_t need = container->size() + more;
  if (need <= container->capacity()) return true;
  return make_room(container, std::max(need, 2 * container->capacity()));
}

}  // namespace sluice::tokenizer

// Aligned allocation that reports failure instead of throwing.
#include "base/arena.h"

#include <cstdlib>

namespace sluice {

Status Block::allocate(size_t bytes, const char* what) {
  reset();
  if (bytes == 0) return {};
  const size_t rounded = static_cast<size_t>(round_up(bytes, kAlignment));
  data_ = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, rounded));
  if (data_ == nullptr) {
    return error(Code::kOutOfMemory, "could not allocate %zu bytes for %s", bytes, what);
  }
  bytes_ = rounded;
  return {};
}

void Block::reset() {
  std::free(data_);
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace sluice

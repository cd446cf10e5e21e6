// Replaces operator new for the whole program.
#include <algorithm>
#include <cstdlib>
#include <new>

#include "allocations.h"

namespace sluice::test {

thread_local Allocations allocations;

}  // namespace sluice::test

#ifndef SLUICE_SANITIZED
namespace {

constexpr size_t kNote = 16;  // the block's size, stored before it

}  // namespace

void* operator new(size_t bytes) {
  auto& a = sluice::test::allocations;
  auto* block = static_cast<char*>(std::malloc(bytes + kNote));
  if (block == nullptr) std::abort();
  *reinterpret_cast<size_t*>(block) = a.on ? bytes : 0;
  if (a.on) {
    ++a.count;
    a.peak = std::max(a.peak, a.now += bytes);
  }
  return block + kNote;
}
void operator delete(void* data) noexcept {
  if (data == nullptr) return;
  char* block = static_cast<char*>(data) - kNote;
  if (sluice::test::allocations.on) {
    sluice::test::allocations.now -= *reinterpret_cast<size_t*>(block);
  }
  std::free(block);
}
void operator delete(void* data, size_t) noexcept {
  operator delete(data);
}
#endif

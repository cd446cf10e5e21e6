// A random number of the system.
#pragma once

#include <cstdint>
#include <random>

namespace sluice {

[[nodiscard]] inline uint64_t random_seed() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

}  // namespace sluice

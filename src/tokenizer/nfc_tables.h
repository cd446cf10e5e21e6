// Canonical decompositions and combining classes of Unicode. The tables are generated; see
// unicode_tables.mjs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::tokenizer {

struct Decomposition {
  uint32_t cp;
  uint32_t first;
  uint32_t second;  // 0: `first` alone
};
struct CombiningRange {
  uint32_t first;
  uint32_t last;
  uint8_t combining;
};

extern const Decomposition kDecompositions[];  // by cp
extern const size_t kDecompositionCount;
extern const uint16_t kCompositions[];  // pairs that compose, sorted by first and second
extern const size_t kCompositionCount;
extern const CombiningRange kCombining[];  // ascending
extern const size_t kCombiningCount;

}  // namespace sluice::tokenizer

// Lower case and nonspacing marks of Unicode. The tables are generated; see unicode_tables.mjs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::tokenizer {

struct LowerRange {
  uint32_t first, last;
  uint32_t step;
  int32_t by;  // distance from upper to lower case
};
struct MarkRange {
  uint32_t first, last;
};

extern const LowerRange kLower[];  // ascending
extern const size_t kLowerCount;
extern const MarkRange kMarks[];  // ascending
extern const size_t kMarkCount;

}  // namespace sluice::tokenizer

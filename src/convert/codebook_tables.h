// The codebooks as floats, one row per value of an entry, for searches over all entries at once.
#pragma once

#include <vector>

#include "kernels/codebooks.h"

namespace sluice::convert {

struct CodebookTable {
  int entries = 0, size = 0;  // values of an entry
  // [size][entries]: values and their squares. Entries of IQ1_S and IQ1_M are -1, 0 and 1.
  std::vector<float> values, squares;
};

enum class Codebook : uint8_t { kIq2Xxs, kIq2Xs, kIq2S, kIq1, kIq3Xxs, kIq3S };

// Made once. Threads may call it together.
[[nodiscard]] const CodebookTable& codebook_table(Codebook codebook);

}  // namespace sluice::convert

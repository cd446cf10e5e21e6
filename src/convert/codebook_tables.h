// The codebooks as floats for searches over all entries at once.
#pragma once

#include <vector>

#include "kernels/codebooks.h"

namespace sluice::convert {

struct CodebookTable {
  static constexpr int kTogether = 16;  // entries side by side, as a search reads them
  int entries = 0, size = 0;            // values of an entry
  // [entries / 16][size][16]. Entries of IQ1_S and IQ1_M are -1, 0 and 1.
  std::vector<float> values;

  // Value i of an entry.
  [[nodiscard]] float value(int entry, int i) const {
    const int at = (entry / kTogether * size + i) * kTogether + entry % kTogether;
    return values[static_cast<size_t>(at)];
  }
};

enum class Codebook : uint8_t { kIq2Xxs, kIq2Xs, kIq2S, kIq1, kIq3Xxs, kIq3S };

// Made once. Threads may call it together.
[[nodiscard]] const CodebookTable& codebook_table(Codebook codebook);

}  // namespace sluice::convert

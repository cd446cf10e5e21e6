#include "convert/codebook_tables.h"

#include <array>

namespace sluice::convert {
namespace {

// Entries of IQ1_S and IQ1_M are eight times as large in memory.
template <class Entry, size_t N>
CodebookTable table_of(const Entry (&entries)[N], float unit) {
  CodebookTable table{static_cast<int>(N), static_cast<int>(sizeof(Entry)), {}};
  static_assert(N % CodebookTable::kTogether == 0);
  for (size_t first = 0; first < N; first += CodebookTable::kTogether) {
    for (size_t i = 0; i < sizeof(Entry); ++i) {
      for (size_t l = 0; l < CodebookTable::kTogether; ++l) {
        const auto value = static_cast<int8_t>(entries[first + l] >> 8 * i);
        table.values.push_back(static_cast<float>(value) * unit);
      }
    }
  }
  return table;
}

std::array<CodebookTable, 6> all_tables() {
  const kernels::Codebooks& books = kernels::codebooks();
  return {table_of(books.iq2_xxs, 1),  table_of(books.iq2_xs, 1),  table_of(books.iq2_s, 1),
          table_of(books.iq1, 0.125f), table_of(books.iq3_xxs, 1), table_of(books.iq3_s, 1)};
}

}  // namespace

const CodebookTable& codebook_table(Codebook codebook) {
  static const std::array<CodebookTable, 6> tables = all_tables();
  return tables[static_cast<size_t>(codebook)];
}

}  // namespace sluice::convert

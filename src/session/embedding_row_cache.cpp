// Small sets need neither a linked list nor a hash table.
#include "session/embedding_row_cache.h"

#include <algorithm>
#include <cstring>

namespace sluice::session {

void EmbeddingRowCache::place(uint8_t* memory, uint64_t n_rows, uint64_t row_bytes) {
  n_sets_ = n_rows / kWays;
  row_bytes_ = row_bytes;
  clock_ = 0;
  entries_ = reinterpret_cast<Entry*>(memory);
  rows_ = memory + n_rows * sizeof(Entry);
  std::fill_n(entries_, n_rows, Entry{-1, 0});
}

const uint8_t* EmbeddingRowCache::find(int32_t token) {
  if (n_sets_ == 0) return nullptr;
  const uint64_t first = static_cast<uint64_t>(token) % n_sets_ * kWays;
  for (uint64_t i = first; i < first + kWays; ++i) {
    if (entries_[i].token != token) continue;
    entries_[i].used = ++clock_;
    ++found_;
    return rows_ + i * row_bytes_;
  }
  return nullptr;
}

void EmbeddingRowCache::keep(int32_t token, const uint8_t* row) {
  if (n_sets_ == 0) return;
  const uint64_t first = static_cast<uint64_t>(token) % n_sets_ * kWays;
  uint64_t oldest = first;
  for (uint64_t i = first; i < first + kWays; ++i) {
    if (entries_[i].token == token) return;
    if (entries_[i].used < entries_[oldest].used) oldest = i;
  }
  entries_[oldest] = {token, ++clock_};
  std::memcpy(rows_ + oldest * row_bytes_, row, row_bytes_);
}

}  // namespace sluice::session

// Caches embedding rows of recent tokens, in the file's layout. Texts repeat tokens, and without
// the cache a table that streams would read each row from the file. The cache is set-associative in
// a piece of the compute buffer, with LRU replacement within a set.
#pragma once

#include <cstdint>

namespace sluice::session {

class EmbeddingRowCache {
 public:
  static constexpr uint64_t kWays = 8;
  // Bytes for `n_rows` rows (a multiple of kWays) including their entries.
  [[nodiscard]] static uint64_t bytes(uint64_t n_rows, uint64_t row_bytes) {
    return n_rows * (row_bytes + sizeof(Entry));
  }
  // Moves the cache, empty, to `memory`; the counters are kept.
  void place(uint8_t* memory, uint64_t n_rows, uint64_t row_bytes);
  // The token's row, valid until the next keep(); null if it is not cached.
  [[nodiscard]] const uint8_t* find(int32_t token);
  void keep(int32_t token, const uint8_t* row);

  // Rows found in the cache, and rows read from the file.
  [[nodiscard]] uint64_t found() const { return found_; }
  [[nodiscard]] uint64_t read() const { return read_; }
  void count_read() { ++read_; }

 private:
  struct Entry {
    int32_t token;
    uint32_t used;
  };
  Entry* entries_ = nullptr;
  uint8_t* rows_ = nullptr;
  uint64_t n_sets_ = 0, row_bytes_ = 0, found_ = 0, read_ = 0;
  uint32_t clock_ = 0;
};

}  // namespace sluice::session

// Rows of a table that tokens have chosen lately, as they are in the file: a text repeats its
// tokens, and a table that streams would give each by a read of its own. The places are a piece of
// the working memory, in sets by token; within a set the least recently used one goes.
#pragma once

#include <cstdint>

namespace sluice::session {

class EmbeddingRowCache {
 public:
  static constexpr uint64_t kWays = 8;
  // Bytes of so many rows, whole sets, with what is known of them.
  [[nodiscard]] static uint64_t bytes(uint64_t n_rows, uint64_t row_bytes) {
    return n_rows * (row_bytes + sizeof(Entry));
  }
  // Begins anew in `memory`; what was counted stays.
  void place(uint8_t* memory, uint64_t n_rows, uint64_t row_bytes);
  // The token's row, until the next keep(); null: it is not there.
  [[nodiscard]] const uint8_t* find(int32_t token);
  void keep(int32_t token, const uint8_t* row);

  // Rows that were found here, and that were read.
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

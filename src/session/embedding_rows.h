// Embedding rows of a batch's tokens: token embeddings and per-layer embeddings. The token
// embedding is read from memory if it is resident. All other rows are read from the file one by
// one; requests start when the batch begins, in the order in which the tables are used. If the plan
// has memory for it, recently read rows are cached.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "session/execution_context.h"
#include "session/sequence.h"

namespace sluice::session {

class EmbeddingRows {
 public:
  explicit EmbeddingRows(const ExecutionContext& context);

  // Sets the batch's tokens; the caller keeps them until the batch ends. False while rows of an
  // abandoned batch are still being read.
  [[nodiscard]] bool begin(std::span<const Token> tokens);
  // Requests as many rows as fit in the queue.
  void request();
  // Whether all rows of the table have arrived (and were checked to be finite).
  [[nodiscard]] bool ready(size_t table);
  // Dequantizes values [col, col + n), whole blocks, of token t's row; the table must be ready.
  void read(size_t table, int32_t t, int64_t col, int64_t n, float* out) const;

 private:
  struct Asked {
    int32_t rows = 0;        // rows requested so far
    bool looked_at = false;  // checked to be finite
  };
  [[nodiscard]] const model::Mat& mat(size_t table) const;
  [[nodiscard]] uint8_t* row(size_t table, int32_t t) const;
  // The resident unit that holds a row of the token embedding; kNoUnit: none.
  [[nodiscard]] uint32_t held(Token token) const;

  ExecutionContext cx_;
  [[nodiscard]] Token token_at(int32_t t) const { return tokens_[static_cast<size_t>(t)]; }
  [[nodiscard]] int32_t n_tokens() const { return static_cast<int32_t>(tokens_.size()); }

  std::span<const Token> tokens_;
  size_t table_ = 0;  // the table whose rows are being requested
  std::array<Asked, model::kMaxTables> asked_{};
  std::vector<uint32_t> unit_of_;  // by token of the batch: unit of its embedding, or kNoUnit
};

}  // namespace sluice::session

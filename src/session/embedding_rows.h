// Rows of tables that tokens choose: their embeddings, and embeddings of each layer's own. The
// token embedding gives them from memory where it is held; all others of a batch are read one by
// one, and asked for as soon as the batch begins, in the order in which the tables are used; where
// the plan has room, rows that were read lately are kept.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "session/engine.h"
#include "session/sequence.h"

namespace sluice::session {

class EmbeddingRows {
 public:
  explicit EmbeddingRows(Engine& engine);

  // The tokens of a batch, which outlive it. False while rows of a batch that was given up are
  // under way.
  [[nodiscard]] bool begin(std::span<const Token> tokens);
  // Asks for as many rows as the queue takes.
  void request();
  // Whether all rows of the table are there; they have been looked at then.
  [[nodiscard]] bool ready(size_t table);
  // Values [col, col + n), whole blocks, of token t's row of a table that is ready.
  void read(size_t table, int32_t t, int64_t col, int64_t n, float* out) const;

 private:
  void read_stored(size_t table, int32_t t, int64_t col, int64_t n, float* out) const;
  struct Asked {
    int32_t rows = 0;  // of the batch's tokens, so far
    bool looked_at = false;
  };
  [[nodiscard]] const model::Mat& mat(size_t table) const;
  [[nodiscard]] uint8_t* row(size_t table, int32_t t) const;
  // The unit that holds a row of the token embedding in memory; kNoUnit: none does.
  [[nodiscard]] uint32_t held(Token token) const;

  Engine& engine_;
  [[nodiscard]] Token token_at(int32_t t) const { return tokens_[static_cast<size_t>(t)]; }
  [[nodiscard]] int32_t n_tokens() const { return static_cast<int32_t>(tokens_.size()); }

  std::span<const Token> tokens_;
  size_t table_ = 0;  // that is being asked for
  std::array<Asked, model::kMaxTables> asked_{};
  std::vector<uint32_t> unit_of_;  // by token of the batch: of the token embedding, or kNoUnit
};

}  // namespace sluice::session

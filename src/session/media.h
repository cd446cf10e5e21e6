// Pictures in a sequence: rows of a projector's output in the place of token embeddings.
#pragma once

#include <cstdint>
#include <span>

namespace sluice::session {

// Where a picture's tokens are in a sequence, and the positions that RoPE gives them.
struct MediaSpan {
  int32_t first = 0, n_tokens = 0;
  int32_t n_positions = 0;  // used up; fewer than tokens if they are on a grid
  int32_t columns = 0;      // of the grid; 0: positions count up as those of text
};

// One input of the encoder, encoded.
struct MediaInput {
  // [n_tokens][width]: the first n_embd values of a row replace the token's embedding. With
  // deepstack, slice k of n_embd values behind them is added after layer k.
  std::span<const float> rows;
  int32_t n_tokens = 0, n_positions = 0, columns = 0;  // as in MediaSpan
  bool non_causal = false;  // its tokens see each other in both directions: one batch
  uint64_t hash = 0;        // of the pixels and the projector: equal inputs have equal tokens
};

// The share of a batch: rows of one input.
struct MediaBatch {
  const float* rows = nullptr;
  int64_t width = 0;  // values from row to row
  bool non_causal = false;
};

// Tokens of pictures are numbers from here on, made of the input's hash and the row.
inline constexpr int32_t kMediaToken = 1 << 30;
[[nodiscard]] int32_t media_token(uint64_t hash, int32_t row);

}  // namespace sluice::session

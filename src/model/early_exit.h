// Tokens that leave early, where the caller asks for less than the whole model: behind a layer, a
// row whose next token is told to be settled keeps its residual stream as it is. The layers that
// follow only make its keys and values, of that state, so that later tokens find them; their
// attention, their FFN and what else adds to the stream are left out, and the head reads the state
// that stayed (CALM, https://arxiv.org/abs/2207.07061; LayerSkip, 2404.16710). A logistic
// regression over a few figures of the state tells it; `sluice convert --calibrate` fits one for
// each layer (gguf/early_exit.h).
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"

namespace sluice::model {

struct Program;

// A tab's engine is held to a size, and models that a tab runs have few layers to spare.
#if defined(__wasm__)
inline constexpr bool kEarlyExit = false;
#else
inline constexpr bool kEarlyExit = true;
#endif

// Figures of a row behind a layer, x, and before it, w: 1; log(1 - cosine(w, x)); log(|x| / |w|);
// log of the mean square of x; log(greatest / root mean square); log of the kurtosis.
inline constexpr int32_t kExitFeatures = 6;

struct ExitPolicy {
  double confidence = 1;  // how likely a token must be settled to leave; 1: none leaves
  bool measures = false;  // rows leave where a watch says so (session/early_exit.h), not by weights
  [[nodiscard]] bool on() const { return measures || confidence != 1; }
};

// What an operation has to do for rows that have left.
inline constexpr int32_t kLeftOut = -1;     // nothing
inline constexpr int32_t kForQueries = -2;  // nothing, unless queries are kept
// Else all of it, or of a product its parts from that column of `out` on.

struct EarlyExits {
  double least = 0;             // score of a row that leaves: log(p / (1 - p)) of its confidence
  std::vector<float> weights;   // [n_layer][kExitFeatures]; empty: measuring
  std::vector<uint8_t> may;     // by layer: rows may leave behind it
  std::vector<int32_t> needed;  // by operation, see above; empty: no row ever leaves
  int32_t kept = 0;  // columns of kX from here on have what the last layer has left of each row
};

// Has rows of the program leave as the policy says. Errors: kInvalidArgument for another
// confidence, where the file has no weights, or for a model that carries more from token to token
// than keys and values, which a state that stayed does not give; kBadHeader, naming the key.
[[nodiscard]] Status add_early_exits(const gguf::Header& header, const ExitPolicy& policy,
                                     Program* program);

}  // namespace sluice::model

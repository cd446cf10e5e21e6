// Early exit, an approximate mode: after a layer, a row whose next token is already settled keeps
// its residual stream. The remaining layers only fill their KV cache from that state, so that later
// tokens can read it. Their attention, FFN and other additions are skipped, and
// the output head reads the kept state (CALM, https://arxiv.org/abs/2207.07061; LayerSkip,
// 2404.16710). A logistic regression over a few features of the state decides;
// `sluice convert --calibrate` fits one for each layer (gguf/early_exit.h).
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"

namespace sluice::model {

struct Program;

// Not in wasm: it saves bytes of the binary, and models that a tab runs have few layers to skip.
#if defined(__wasm__)
inline constexpr bool kEarlyExit = false;
#else
inline constexpr bool kEarlyExit = true;
#endif

// Features of a row, x after a layer and w before it: 1; log(1 - cosine(w, x)); log(|x| / |w|);
// log of the mean square of x; log(maximum / root mean square); log of the kurtosis.
inline constexpr int32_t kExitFeatures = 6;

struct ExitPolicy {
  double confidence = 1;  // probability of being settled at which a token exits; 1: never
  bool measures = false;  // a watch decides (ExitWatch in session/engine.h), not the weights
  [[nodiscard]] bool on() const { return measures || confidence != 1; }
};

// What an operation still computes for rows that have exited.
inline constexpr int32_t kLeftOut = -1;     // nothing
inline constexpr int32_t kForQueries = -2;  // nothing, unless observer queries are stored
// >= 0: all of it; for a matrix multiplication, its parts from that column of `out` on.

struct EarlyExits {
  double least = 0;             // score at which a row exits: log(p / (1 - p)) of the confidence
  std::vector<float> weights;   // [n_layer][kExitFeatures]; empty: measuring
  std::vector<uint8_t> may;     // by layer: rows may exit after it
  std::vector<int32_t> needed;  // by operation, see above; empty: early exit is off
  int32_t kept = 0;  // columns of kX from here on hold each row's state after the last layer
};

// Sets up early exit as the policy says. Errors: kInvalidArgument for a confidence out of range,
// for a file without weights, or for a model that carries more state between tokens than its KV
// cache; kBadHeader, naming the key.
[[nodiscard]] Status add_early_exits(const gguf::Header& header, const ExitPolicy& policy,
                                     Program* program);

}  // namespace sluice::model

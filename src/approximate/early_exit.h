// Early exit, an approximate mode: after a layer, a row whose next token is already settled keeps
// its residual stream. The remaining layers only fill their KV cache from that state, so that later
// tokens can read it. Their attention, FFN and other additions are skipped, and
// the output head reads the kept state (CALM, https://arxiv.org/abs/2207.07061; LayerSkip,
// 2404.16710). A logistic regression over a few features of the state decides;
// `sluice convert --calibrate` fits one for each layer (gguf/early_exit.h).
//
// The program gets an operation after each layer that decides which rows exit. Once all rows of the
// batch have exited, as in decode steps, it jumps to a second copy of the remaining layers, behind
// all other operations, that has only what fills their caches. In larger batches the layers run for
// all rows, and their contribution to exited rows is undone. Whether a row exits depends on that
// row alone, so results do not depend on the other rows of the batch or on earlier batches.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"
#include "model/program.h"
#include "session/approximation.h"

namespace sluice::approximate {

// Features of a row, x after a layer and w before it: 1; log(1 - cosine(w, x)); log(|x| / |w|);
// log of the mean square of x; log(maximum / root mean square); log of the kurtosis.
inline constexpr int32_t kExitFeatures = 6;
using ExitFeatures = std::array<float, kExitFeatures>;

// Features of a row of n values before and after a layer.
[[nodiscard]] ExitFeatures exit_features(const float* before, const float* now, int64_t n);

// Steps of the mode: ApproximateOp::step.
enum class ExitStep : int32_t {
  kBegin,  // before the first layer: keeps the rows
  kLayer,  // after a layer
  kLast,   // after the last layer
  kJoin,   // after the copies: goes on behind the last layer
};

// Where a program's rows may exit.
struct ExitLayers {
  std::vector<uint8_t> may;  // by layer: rows may exit after it
  int32_t kept = 0;  // columns of kX from here on hold each row's state after the last layer
};

// By layer, whether rows may exit after it. Errors: kInvalidArgument for a model that carries more
// state between tokens than its KV cache.
[[nodiscard]] Result<std::vector<uint8_t>> exit_layers(const model::Program& program);
// Adds the operations of mode `mode`. `observes`: queries of exited rows are kept too, for
// heavy-hitter eviction. Errors: exit_layers'.
[[nodiscard]] Result<ExitLayers> add_exits(model::Program* program, int32_t mode, bool observes);

// Null: rows never exit. Errors: kNotInBuild; kInvalidArgument for a confidence out of range, or
// for a file without weights; exit_layers'; kBadHeader, naming the key.
[[nodiscard]] Result<std::unique_ptr<session::Approximation>> make_early_exit(
    const gguf::Header& header, const session::ExitPolicy& policy, bool observes, int32_t mode,
    model::Program* program);

}  // namespace sluice::approximate

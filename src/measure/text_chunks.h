// How a text goes through a model in windows and layer by layer: where each layer's operations
// begin, how long a window is, which positions are sampled, and what a part of the model costs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "native/model_file.h"

namespace sluice::measure {

inline constexpr int32_t kWindow = 256;  // tokens

// Operation indexes where each layer begins, and where the layers end.
struct TextChunks {
  std::vector<size_t> layer;  // [n_layer]
  size_t tail = 0, end = 0;

  explicit TextChunks(const model::Program& p);
  [[nodiscard]] size_t behind(size_t l) const { return l + 1 < layer.size() ? layer[l + 1] : tail; }
};

// n positions spread evenly over [0, of).
[[nodiscard]] std::vector<size_t> even(size_t n, size_t of);

// Window length in tokens: kWindow, or the model's context if that is shorter.
[[nodiscard]] int32_t window_of(const gguf::Header& header);

// Multiplications per token in the layers [first, end), without the output head. Work is counted,
// not timed, so that results are the same on every machine.
[[nodiscard]] double work_between(const model::Program& program, int32_t first, int32_t end);

// Runs a part of the model over a window, with an empty KV cache. An empty part passes its states
// on. Errors: those of the session and of reading.
[[nodiscard]] Status run_part(native::Model& model, session::Session& session,
                              std::span<const session::Token> window,
                              const session::PartialForward& part);

}  // namespace sluice::measure

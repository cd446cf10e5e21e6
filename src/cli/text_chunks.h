// How a text goes through a model in windows and layer by layer: where each layer's operations
// begin, how long a window is, and which positions are sampled.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "model/program.h"

namespace sluice::cli {

inline constexpr int32_t kWindow = 256;  // tokens

// Operation indexes where each layer begins, and where the layers end.
struct TextChunks {
  std::vector<size_t> layer;  // [n_layer]
  size_t tail = 0, end = 0;

  explicit TextChunks(const model::Program& p) : end(static_cast<size_t>(p.pool)) {
    layer.assign(static_cast<size_t>(p.hp.n_layer), SIZE_MAX);
    for (size_t i = 0; i < end; ++i) {
      if (p.ops[i].layer < 0) continue;
      size_t& first = layer[static_cast<size_t>(p.ops[i].layer)];
      first = std::min(first, i);
      tail = i + 1;
    }
    for (size_t l = layer.size(), next = tail; l-- > 0;) {
      if (layer[l] == SIZE_MAX) layer[l] = next;
      next = layer[l];
    }
  }
  [[nodiscard]] size_t behind(size_t l) const { return l + 1 < layer.size() ? layer[l + 1] : tail; }
};

// n positions spread evenly over [0, of).
inline std::vector<size_t> even(size_t n, size_t of) {
  std::vector<size_t> out;
  n = std::min(n, of);
  for (size_t i = 0; i < n; ++i) out.push_back((2 * i + 1) * of / (2 * n));
  return out;
}

// Window length in tokens: kWindow, or the model's context if that is shorter.
inline int32_t window_of(const gguf::Header& header) {
  const std::string arch(header.get_string("general.architecture").value_or(""));
  const uint64_t most = header.get_u64(arch + ".context_length").value_or(kWindow);
  return static_cast<int32_t>(std::clamp<uint64_t>(most, 2, kWindow));
}

}  // namespace sluice::cli

// A part of a pass, from one operation to another, over rows of the residual stream that the caller
// gives and takes: what each layer of a model is worth is measured so in one reading of a text,
// where each layer's absence continues from the state before it. Keys, values and what else layers
// have left is as the parts before have left it; a recurrent state begins anew. Natively alone.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace sluice::session {

#if defined(__wasm__)
inline constexpr bool kPartialForward = false;
#else
inline constexpr bool kPartialForward = true;
#endif

// Rows are not left out for having no logits wanted: all of them go on to the end.
struct PartialForward {
  size_t first = 0, end = 0;         // operations [first, end) of the program
  std::span<const float> from;       // [rows][width of kX]; empty: of all tokens, as it is
  std::vector<float>* to = nullptr;  // the same behind the last; null: not wanted
};

}  // namespace sluice::session

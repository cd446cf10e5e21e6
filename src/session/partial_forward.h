// Runs a part of a forward pass, from one operation to another, on rows of the residual stream that
// the caller passes in and gets back. Layer ablation uses it: one read of the weights measures each
// layer's absence, continuing from the state before that layer. The KV cache is as earlier parts
// left it; a recurrent state begins at zero. Native
// builds only.
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

// No rows are dropped for lack of wanted logits: all continue to the end.
struct PartialForward {
  size_t first = 0, end = 0;         // operations [first, end) of the program
  std::span<const float> from;       // [rows][width of kX]; empty: keep the buffer as it is
  std::vector<float>* to = nullptr;  // receives the rows after the last operation; null: unused
};

struct CpuBatch;
// For an executor: copies the rows in and out.
void enter_part(CpuBatch& cx);
void end_part(const CpuBatch& cx);

}  // namespace sluice::session

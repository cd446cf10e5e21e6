// The multi-token prediction (MTP) head, which predicts the token after the next (DeepSeek-V3,
// section 2.2, https://arxiv.org/abs/2412.19437): one more layer of the model's own kind. For
// position i its input is eh_proj of [embedding of token i + 1; final normed state of i], each
// normed. The layer's normed output gives the output head the logits for token i + 2, and can
// replace the state to predict the token after that. The state is taken after the final norm, which
// is right for qwen35 (https://github.com/ggml-org/llama.cpp/pull/24025); according to the same
// thread, DeepSeek and GLM take it before that norm. A wrong state lowers the acceptance rate of
// draft tokens but never changes the output.
//
// Embedding and output head are the model's own; the file's nextn.embed_tokens and
// nextn.shared_head_head, if any, are copies of them. Of several MTP layers the first is used.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "gguf/gguf.h"

namespace sluice::model {

struct Program;

// Not in wasm, to save bytes of the binary.
#if defined(__wasm__)
inline constexpr bool kNextn = false;
#else
inline constexpr bool kNextn = true;
#endif

struct Nextn {
  int32_t first = 0, end = 0;  // its operations, after all others; empty: not requested
  // The operation that norms the model's state in kT; skipped for the head's own output.
  int32_t state_norm = 0;
  int32_t layer = -1;         // the layer of its attention
  uint64_t matrix_bytes = 0;  // bytes of weights per row, without the output head
  [[nodiscard]] bool on() const { return kNextn && end > 0; }
};

// Adds the operations. Errors: kInvalidArgument for a model without MTP layers; kMissingTensor,
// kBadShape, kUnsupportedType, naming the tensor.
[[nodiscard]] Status add_nextn(const gguf::Header& header, Program* program);

}  // namespace sluice::model

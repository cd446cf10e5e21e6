// A head that predicts the token after the next (multi-token prediction, DeepSeek-V3's section 2.2,
// https://arxiv.org/abs/2412.19437): one more layer of the model's own kind behind the last. For
// position i it reads the model's final normed state of i and the embedding of token i + 1, each
// normed, [embedding; state] through eh_proj, and what its layer makes of that, normed, gives the
// head logits for token i + 2. Its normed output can take the state's place for the token after
// that. The state is the one behind the final norm, which is known to be right for qwen35
// (https://github.com/ggml-org/llama.cpp/pull/24025); the same thread has DeepSeek's and GLM's read
// it before that norm. A state of the wrong kind costs guesses, never an answer.
//
// Embedding and output head are the model's: where a file has nextn.embed_tokens and
// nextn.shared_head_head, they are copies of them. Of several such layers the first is run.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "gguf/gguf.h"

namespace sluice::model {

struct Program;

// A tab's engine is held to a size.
#if defined(__wasm__)
inline constexpr bool kNextn = false;
#else
inline constexpr bool kNextn = true;
#endif

struct Nextn {
  int32_t first = 0, end = 0;  // operations, behind all others; none: not asked for
  // The one that norms the model's state in kT; not for what the head itself has given.
  int32_t state_norm = 0;
  int32_t layer = -1;         // of its attention
  uint64_t matrix_bytes = 0;  // that a row reads, the output head's apart
  [[nodiscard]] bool on() const { return kNextn && end > 0; }
};

// Adds the operations. Errors: kInvalidArgument for a model without such layers; kMissingTensor,
// kBadShape, kUnsupportedType, naming the tensor.
[[nodiscard]] Status add_nextn(const gguf::Header& header, Program* program);

}  // namespace sluice::model

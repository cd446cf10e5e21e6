// Synthetic vocabularies of a given size that real tokenizers accept, without a download or a
// licence. Every longer token is the join of two earlier ones, as after training, so merging can
// reach it. Short English words come first, so that ordinary text has a realistic number of tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/make-model/gguf_writer.h"

namespace sluice::make_model {

enum class VocabularyKind : uint8_t {
  kSentencePiece,  // llama: byte tokens, scores; <unk> <s> </s> are 0 1 2
  kQwen,           // byte-level BPE with merges, pre-tokenizer qwen2, ChatML tokens, no BOS
  kSmolVlm,        // like kQwen, pre-tokenizer smollm, with the tokens around pictures
  kLlama3,         // byte-level BPE with merges, pre-tokenizer llama-bpe, 256 special tokens
};

// The minimum size of a vocabulary: its bytes, letters and special tokens.
[[nodiscard]] uint32_t smallest_vocabulary(VocabularyKind kind);

// Adds all tokenizer.* keys. `size` must be at least smallest_vocabulary(kind).
void add_vocabulary(GgufWriter* writer, VocabularyKind kind, uint32_t size, uint64_t seed);

}  // namespace sluice::make_model

// Invented vocabularies of a given size that real tokenizers accept: no download, no licence, and
// still a tokenizer that does real work. Every longer token is the join of two earlier ones, as
// training would have it, so that merging can reach it; short English words come first, so that
// ordinary text becomes a realistic number of tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/gguf_writer.h"

namespace sluice::tools {

enum class VocabularyKind : uint8_t {
  kSentencePiece,  // llama: byte tokens, scores; <unk> <s> </s> are 0 1 2
  kQwen,           // byte-level BPE with merges, pre-tokenizer qwen2, ChatML tokens, no BOS
  kLlama3,         // byte-level BPE with merges, pre-tokenizer llama-bpe, 256 special tokens
};

// The smallest vocabulary of a kind: its bytes, letters and special tokens.
[[nodiscard]] uint32_t smallest_vocabulary(VocabularyKind kind);

// Adds every tokenizer.* key. `size` is at least smallest_vocabulary(kind).
void add_vocabulary(GgufWriter* writer, VocabularyKind kind, uint32_t size, uint64_t seed);

}  // namespace sluice::tools

// Converts tokenizer.json, and the settings beside it, to the tokenizer.ggml.* metadata of a GGUF.
// Byte-level BPE becomes "gpt2", with the pre-tokenizer recognized by its regular expressions. BPE
// with byte fallback (converted SentencePiece) becomes "llama", with scores derived from the order
// of the merges. Unigram becomes "t5", WordPiece "bert".
#pragma once

#include "base/status.h"
#include "gguf/metadata_writer.h"
#include "hf/json.h"
#include "hf/model.h"

namespace sluice::hf {

inline constexpr int64_t kMaxVocabulary = 1 << 20;
inline constexpr uint64_t kMaxMerges = 1 << 21;

// `n_vocab` is the number of rows of the embedding; missing ids up to it become unused tokens.
// Errors: kBadHeader (JSON), kBadTokenizer, kUnsupportedTokenizer.
[[nodiscard]] Status describe_tokenizer(const Directory& directory, const Json& config,
                                        int64_t n_vocab, gguf::MetadataWriter* out);

}  // namespace sluice::hf

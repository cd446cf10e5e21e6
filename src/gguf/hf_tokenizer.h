// tokenizer.json (and the settings beside it) as the tokenizer.ggml.* metadata that a GGUF has.
// Byte-level BPE becomes "gpt2" with the pre-tokenizer recognized by its regular expressions; BPE
// with byte fallback (converted SentencePiece) becomes "llama", whose scores follow from the order
// of the merges; unigram becomes "t5", WordPiece "bert".
#pragma once

#include "base/status.h"
#include "gguf/hf_config.h"
#include "gguf/json.h"
#include "gguf/metadata_writer.h"

namespace sluice::gguf {

inline constexpr int64_t kMaxHfVocabulary = 1 << 20;
inline constexpr uint64_t kMaxHfMerges = 1 << 21;

// `n_vocab`: rows of the embedding; ids without a token are filled up to it.
// Errors: kBadHeader (JSON), kBadTokenizer, kUnsupportedTokenizer.
[[nodiscard]] Status describe_hf_tokenizer(const HfDirectory& directory, const Json& config,
                                           int64_t n_vocab, MetadataWriter* out);

}  // namespace sluice::gguf

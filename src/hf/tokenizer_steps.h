// What of a tokenizer.json the tokenizers do of their own accord or can be told to; all else is
// refused by name.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "hf/tokenizer_file.h"

namespace sluice::hf {

inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, SentencePiece's space

enum class Kind { kByteLevel, kSentencePiece, kUnigram, kWordPiece };

// Normalizer, pre-tokenizer, model and post-processor, in that order; what a tokenizer must be told
// is written. Errors: kUnsupportedTokenizer.
[[nodiscard]] Status check_steps(const TokenizerFile& file, Kind kind, gguf::MetadataWriter* out);
// The flags of added tokens: what surrounds them, and where they are looked for.
[[nodiscard]] Status write_added_flags(const TokenizerFile& file, bool normalizes,
                                       gguf::MetadataWriter* out);
// The steps of the pre-tokenizer, as hf_pre_tokenizer.h wants them.
[[nodiscard]] std::vector<std::string> pre_tokenizer_steps(const TokenizerFile& file);

}  // namespace sluice::hf

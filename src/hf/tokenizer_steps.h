// Checks the steps of a tokenizer.json: each must be one that the tokenizers always do, or can be
// configured to do. Any other step is an error that names it.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "hf/tokenizer_file.h"

namespace sluice::hf {

inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, SentencePiece's space

enum class Kind { kByteLevel, kSentencePiece, kUnigram, kWordPiece };

// Checks normalizer, pre-tokenizer, model and post-processor, in that order, and writes the
// settings that a tokenizer needs. Errors: kUnsupportedTokenizer.
[[nodiscard]] Status check_steps(const TokenizerFile& file, Kind kind, gguf::MetadataWriter* out);
// Writes the flags of added tokens: lstrip, rstrip and normalized.
[[nodiscard]] Status write_added_flags(const TokenizerFile& file, bool normalizes,
                                       gguf::MetadataWriter* out);
// The steps of the pre-tokenizer, in the form of pre_tokenizer.h.
[[nodiscard]] std::vector<std::string> pre_tokenizer_steps(const TokenizerFile& file);

}  // namespace sluice::hf

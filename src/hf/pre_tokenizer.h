// Recognizes the byte-level BPE pre-tokenizer of a tokenizer.json. The file describes it by regular
// expressions and other steps; GGUF and src/tokenizer use a name. An expression is compared as
// text, never interpreted.
#pragma once

#include <span>
#include <string>

#include "base/status.h"

namespace sluice::hf {

// Returns the name for tokenizer.ggml.pre. `steps` are those of "pre_tokenizer", one string each:
// "Split:REGEX", "Digits:1" (each digit alone), "Digits:n", "ByteLevel:regex" (GPT-2's expression),
// "ByteLevel", "Punctuation:BEHAVIOR". `whole_words` is ignore_merges: a word that is a token needs
// no merges. It distinguishes Llama 3 from others with the same steps. Errors:
// kUnsupportedTokenizer.
[[nodiscard]] Result<std::string> recognize_pre_tokenizer(std::span<const std::string> steps,
                                                          bool whole_words);

}  // namespace sluice::hf

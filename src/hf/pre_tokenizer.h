// Which pre-tokenizer of byte-level BPE a tokenizer.json describes: a file spells it as regular
// expressions and other steps, GGUF (and src/tokenizer) by name. An expression is recognized by its
// text, never interpreted.
#pragma once

#include <span>
#include <string>

#include "base/status.h"

namespace sluice::hf {

// `steps`: of "pre_tokenizer", one line each: "Split:REGEX", "Digits:1" (each digit alone),
// "Digits:n", "ByteLevel:regex" (GPT-2's expression), "ByteLevel", "Punctuation:BEHAVIOR".
// `whole_words`: a word that is a token is taken whole, which tells Llama 3's from others cut like
// it. Returns the name for tokenizer.ggml.pre. Errors: kUnsupportedTokenizer.
[[nodiscard]] Result<std::string> recognize_pre_tokenizer(std::span<const std::string> steps,
                                                          bool whole_words);

}  // namespace sluice::hf

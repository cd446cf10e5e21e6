// Converts text to lower case and strips accents, as WordPiece vocabularies expect. In browsers and
// Node the engine calls JavaScript for it. Native builds use tables generated from Node's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::tokenizer {

enum class Accents : uint8_t {
  kKeep = 0,
  // Replaces a character by the first one of its decomposition, and removes marks. This is
  // llama.cpp's rule, for which GGUF files are made. (A Hangul syllable becomes its first
  // consonant.)
  kFirst = 1,
  // Decomposes characters and removes nonspacing marks. This is BERT's own rule.
  kStrip = 2,
};

// Works character by character, without context. `text` is valid UTF-8. False when memory is out.
[[nodiscard]] bool fold_text(std::string_view text, bool lower, Accents accents, std::string* out);

}  // namespace sluice::tokenizer

// Text in lower case and without accents, as WordPiece vocabularies were trained on it. Browsers
// and Node know Unicode: there the engine asks JavaScript, natively tables made from Node's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::tokenizer {

enum class Accents : uint8_t {
  kKeep = 0,
  // Every character becomes the first of what it decomposes into, and marks go: llama.cpp's
  // reading, which GGUF files are written for. (A Hangul syllable becomes its first consonant.)
  kFirst = 1,
  // Characters decompose, and nonspacing marks go: that of BERT itself.
  kStrip = 2,
};

// Character by character, without regard for context. `text` is valid UTF-8. False when memory is
// out.
[[nodiscard]] bool fold_text(std::string_view text, bool lower, Accents accents, std::string* out);

}  // namespace sluice::tokenizer

// SentencePiece's precompiled normalization rules: a double-array trie of byte strings, each with a
// replacement. The data comes from the file, so every index is checked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"

namespace sluice::tokenizer {

inline constexpr uint64_t kMaxCharsmapBytes = 4u << 20;

class Charsmap {
 public:
  // Reads tokenizer.ggml.precompiled_charsmap; empty if it is missing. Errors: kBadTokenizer.
  [[nodiscard]] Status load(const gguf::Header& header);

  struct Rule {
    size_t bytes = 0;  // of the replaced text; 0: no rule
    std::string_view replacement;
  };
  // The rule for the longest string that text[pos..] starts with.
  [[nodiscard]] Rule longest(std::string_view text, size_t pos) const;
  [[nodiscard]] uint64_t memory_bytes() const {
    return units_.capacity() * sizeof(uint32_t) + replacements_.capacity();
  }

 private:
  std::vector<uint32_t> units_;
  std::string replacements_;  // NUL-terminated strings; the last is terminated too
};

}  // namespace sluice::tokenizer

// The vocabulary of all tokenizer models: the tokens' texts in one arena, an offset per token, and
// an open-addressing table of ids. It is compact because it counts in the memory budget: 152k
// tokens take about 3 MB, and would take about 20 MB as strings in a map. Lookups compare with the
// arena.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"
#include "tokenizer/tokenizer.h"

namespace sluice::tokenizer {

// Caps on what a file may declare.
inline constexpr uint64_t kMaxVocab = 1u << 20;
inline constexpr uint64_t kMaxMerges = 1u << 21;
inline constexpr uint64_t kMaxTokenBytes = 1u << 14;
inline constexpr uint64_t kMaxSpecialBytes = 256;  // of a token that is matched in the text
// More probes of a lookup mean that a file was made to cause collisions.
inline constexpr uint32_t kMaxProbes = 1024;

inline constexpr Token kNoToken = -1;

enum class TokenType : uint8_t {  // the values of tokenizer.ggml.token_type
  kUndefined = 0,
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

[[nodiscard]] uint64_t hash_bytes(std::string_view bytes);

class Vocab {
 public:
  // Bytes of text that the vocabulary will hold, including the names of empty tokens.
  [[nodiscard]] static uint64_t text_bytes(const gguf::Value& tokens);
  // The number of tokens of types that are matched in text, without those of well-known names.
  [[nodiscard]] static uint64_t count_special(const gguf::Header& header);

  // Reads tokenizer.ggml.tokens and token_type. If `repeats` are allowed, find() returns the last
  // of several tokens with the same text. Errors: kBadTokenizer.
  [[nodiscard]] Status load(const gguf::Header& header, bool repeats = false);

  [[nodiscard]] int32_t size() const { return static_cast<int32_t>(types_.size()); }
  [[nodiscard]] bool contains(Token id) const { return id >= 0 && id < size(); }
  [[nodiscard]] std::string_view text(Token id) const {
    const auto i = static_cast<size_t>(id);
    return {arena_.data() + offsets_[i], offsets_[i + 1] - offsets_[i]};
  }
  [[nodiscard]] TokenType type(Token id) const { return types_[static_cast<size_t>(id)]; }
  void set_type(Token id, TokenType type) { types_[static_cast<size_t>(id)] = type; }
  // kNoToken when no token has this text.
  [[nodiscard]] Token find(std::string_view text) const;
  // The same for a user's text: never finds control tokens.
  [[nodiscard]] Token find_text(std::string_view text) const {
    const Token id = find(text);
    return id != kNoToken && type(id) == TokenType::kControl ? kNoToken : id;
  }
  [[nodiscard]] uint32_t max_token_bytes() const { return max_token_bytes_; }
  [[nodiscard]] uint64_t memory_bytes() const;

 private:
  [[nodiscard]] Status copy_texts(const gguf::Value& tokens);
  [[nodiscard]] Status copy_types(const gguf::Header& header);
  [[nodiscard]] Status build_table(bool repeats);

  std::vector<char> arena_;
  std::vector<uint32_t> offsets_;  // [n_vocab + 1]
  std::vector<TokenType> types_;   // [n_vocab]
  std::vector<Token> table_;       // open addressing, linear probing; kNoToken is free
  uint32_t max_token_bytes_ = 0;
};

}  // namespace sluice::tokenizer

// The bytes of a model's tokens, sorted by prefix: each token stores only what differs from its
// predecessor. A mask walks the list with a stack of states and visits each shared prefix once.
//
// Plain tokens consist of whole characters without controls, '"' and '\'. They are most of a
// vocabulary and are allowed all at once inside strings and free text. Tokens of letters and digits
// only are also allowed at once in most patterns and formats. So plain tokens are grouped by kind
// and number of characters, each group with its own mask.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/aligned.h"
#include "grammar/grammar.h"

namespace sluice::grammar {

// What grammars need from a tokenizer.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  [[nodiscard]] virtual int32_t n_tokens() const = 0;
  // The token's bytes in text; empty for control tokens and tokens without text.
  [[nodiscard]] virtual std::string bytes(Token token) const = 0;
  [[nodiscard]] virtual std::string_view name(Token token) const = 0;  // as stored in the file
  [[nodiscard]] virtual bool ends(Token token) const = 0;              // ends the text or a turn
};

// Leading bytes of non-ASCII plain characters, with the range of the second byte.
struct PlainLead {
  uint8_t first, last, lo, hi;
  int length;
};
inline constexpr PlainLead kPlainLeads[] = {
    {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3}, {0xE1, 0xEC, 0x80, 0xBF, 3},
    {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3}, {0xF0, 0xF0, 0x90, 0xBF, 4},
    {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4}};

// The kind that all characters of a plain token have; each kind includes the previous one.
enum class Plain : uint8_t { kLower, kWord, kAny };  // a-z; ASCII letters and digits
inline constexpr uint32_t kPlainKinds = 3;

class Vocabulary {
 public:
  // Per kind: plain tokens of 1 to 4, 5 to 8 and 9 to 16 characters. One more group has all others.
  static constexpr uint32_t kLengths = 3;
  static constexpr uint32_t kMin[kLengths] = {1, 5, 9}, kMax[kLengths] = {4, 8, 16};
  static constexpr uint32_t kGroups = kPlainKinds * kLengths + 1;
  static constexpr uint32_t kMaxTokenBytes = 255;  // longer tokens are never allowed

  // `source` must outlive it. Errors: kOutOfMemory.
  [[nodiscard]] static Result<std::unique_ptr<Vocabulary>> create(const TokenSource& source);
  // Upper bound in bytes, including create()'s own scratch.
  [[nodiscard]] static uint64_t memory_bytes(uint64_t n_tokens, uint64_t text_bytes);

  [[nodiscard]] const TokenSource& source() const { return *source_; }
  [[nodiscard]] int32_t n_tokens() const { return n_tokens_; }
  [[nodiscard]] size_t mask_words() const { return (static_cast<size_t>(n_tokens_) + 63) / 64; }
  // The token with this name, or -1.
  [[nodiscard]] Token find(std::string_view name) const;
  // The tokens that end the text.
  [[nodiscard]] std::span<const Token> ends() const { return ends_; }

  // A sorted list. Entry i shares lcp[i] bytes with its predecessor; its other bytes are
  // text[offset[i], offset[i + 1]).
  struct Group {
    uint32_t begin, end;  // entries
  };
  [[nodiscard]] Group group(uint32_t g) const { return {group_[g], group_[g + 1]}; }
  [[nodiscard]] const uint64_t* group_mask(uint32_t g) const { return masks_ + g * mask_words(); }
  [[nodiscard]] const Token* ids() const { return ids_; }
  [[nodiscard]] const uint8_t* lcp() const { return lcp_; }
  [[nodiscard]] const uint32_t* offset() const { return offset_; }
  [[nodiscard]] const uint8_t* text() const { return text_; }

 private:
  Status build();

  const TokenSource* source_ = nullptr;
  int32_t n_tokens_ = 0;
  AlignedBuffer memory_;
  Token* ids_ = nullptr;
  uint32_t* offset_ = nullptr;
  uint64_t* masks_ = nullptr;  // [kGroups - 1][mask_words]
  uint8_t* lcp_ = nullptr;
  uint8_t* text_ = nullptr;
  uint32_t group_[kGroups + 1] = {};
  std::vector<Token> ends_;
};

}  // namespace sluice::grammar

// The bytes of a model's tokens, sorted so that those that begin alike stand together: each keeps
// only what differs from the one before it. A mask walks that list with a stack of states and looks
// at each shared beginning once.
//
// Tokens of whole, plain characters (nothing that ends or escapes in a JSON string: no controls, no
// '"', no '\') are most of a vocabulary and are allowed all together inside strings and free text,
// those of letters and digits alone in most patterns and formats as well: they stand in groups by
// their kind and number of characters, each with its own mask.
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

// What grammars need to know of a tokenizer.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  [[nodiscard]] virtual int32_t n_tokens() const = 0;
  // What the token says in running text; empty for control tokens and those that no text has.
  [[nodiscard]] virtual std::string bytes(Token token) const = 0;
  [[nodiscard]] virtual std::string_view name(Token token) const = 0;  // as the file has it
  [[nodiscard]] virtual bool ends(Token token) const = 0;              // the text, or a turn
};

// First bytes of plain characters beyond ASCII, with the range of the second byte.
struct PlainLead {
  uint8_t first, last, lo, hi;
  int length;
};
inline constexpr PlainLead kPlainLeads[] = {
    {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3}, {0xE1, 0xEC, 0x80, 0xBF, 3},
    {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3}, {0xF0, 0xF0, 0x90, 0xBF, 4},
    {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4}};

// What all characters of a plain token are; each kind belongs to the next one too.
enum class Plain : uint8_t { kLower, kWord, kAny };  // a-z; letters and digits of ASCII
inline constexpr uint32_t kPlainKinds = 3;

class Vocabulary {
 public:
  // Of each kind plain tokens of 1 to 4, 5 to 8 and 9 to 16 characters, and all others.
  static constexpr uint32_t kLengths = 3;
  static constexpr uint32_t kMin[kLengths] = {1, 5, 9}, kMax[kLengths] = {4, 8, 16};
  static constexpr uint32_t kGroups = kPlainKinds * kLengths + 1;
  static constexpr uint32_t kMaxTokenBytes = 255;  // longer ones are never allowed

  // `source` outlives it. Errors: kOutOfMemory.
  [[nodiscard]] static Result<std::unique_ptr<Vocabulary>> create(const TokenSource& source);
  // Upper bounds, create()'s own work included.
  [[nodiscard]] static uint64_t memory_bytes(uint64_t n_tokens, uint64_t text_bytes);

  [[nodiscard]] const TokenSource& source() const { return *source_; }
  [[nodiscard]] int32_t n_tokens() const { return n_tokens_; }
  [[nodiscard]] size_t mask_words() const { return (static_cast<size_t>(n_tokens_) + 63) / 64; }
  // The token with this name, or -1.
  [[nodiscard]] Token find(std::string_view name) const;
  // Those that end the text.
  [[nodiscard]] std::span<const Token> ends() const { return ends_; }

  // A sorted list: entry i shares lcp[i] bytes with the one before it, and its other bytes are
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

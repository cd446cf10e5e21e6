// Special tokens: BOS, EOS, end-of-generation tokens, and the matcher that finds special tokens in
// the input text. The rules are those of llama.cpp, whose converters write the files: metadata
// first, then well-known names.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"
#include "tokenizer/literal_spans.h"
#include "tokenizer/prefix_index.h"
#include "tokenizer/vocab.h"

namespace sluice::tokenizer {

struct SpecialTokens {
  Token bos = kNoToken;
  Token eos = kNoToken;
  Token unknown = kNoToken;  // for text without a token; never a control token
  Token separator = kNoToken;
  bool add_bos = false;
  bool add_eos = false;
  bool add_separator = false;            // between the two texts of a pair
  std::vector<Token> end_of_generation;  // sorted
  // Control tokens that are output as text, and therefore have the type of user-defined ones.
  std::vector<Token> shown;

  // Overrides the current values, which are the tokenizer model's defaults, by the metadata. A
  // default id outside of the vocabulary is dropped; in the metadata it is an error. Marks tokens
  // with well-known names as control tokens in `vocab`. Errors: kBadTokenizer.
  [[nodiscard]] Status read(const gguf::Header& header, Vocab* vocab);

 private:
  void find_end_of_generation(const gguf::Header& header, Vocab* vocab);
};

// Finds control, unknown and user-defined tokens in text, the longest at each position.
class SpecialMatcher {
 public:
  // `strip_right`: removes spaces after most special tokens (the Phi-3 rule).
  [[nodiscard]] Status build(const Vocab& vocab, const SpecialTokens& specials, bool strip_right);

  struct Match {
    size_t begin = 0;
    size_t end = 0;          // of the token's text
    size_t resume = 0;       // where ordinary text continues
    Token token = kNoToken;  // kNoToken: nothing found up to the end
  };
  // The first match at or after `from`, which must not decrease from call to call. User-defined
  // tokens always match. The others match only with `parse_special`. Neither these nor control
  // tokens that are output as text match in literal spans. `normalized` selects the tokens that are
  // matched in normalized text, or else all others.
  [[nodiscard]] Match next(const Vocab& vocab, std::string_view text, size_t from,
                           bool parse_special, LiteralText* marked, bool normalized = false) const;
  [[nodiscard]] bool has_normalized() const { return !normalized_.empty(); }
  // Reads tokenizer.json's flags of tokens: whether they strip white space before or after them,
  // and whether they are matched in normalized text.
  [[nodiscard]] Status read_flags(const gguf::Header& header, const Vocab& vocab);
  // Whether text becomes this token only outside of literal spans.
  [[nodiscard]] bool is_gated(const Vocab& vocab, Token id) const;
  [[nodiscard]] uint64_t memory_bytes() const {
    return index_.memory_bytes() + (shown_.capacity() + strips_left_.capacity() +
                                    strips_right_.capacity() + normalized_.capacity()) *
                                       sizeof(Token);
  }

 private:
  PrefixIndex index_;
  std::vector<Token> shown_;
  std::vector<Token> strips_left_;  // sorted
  std::vector<Token> strips_right_;
  std::vector<Token> normalized_;
  bool strip_right_ = false;
};

}  // namespace sluice::tokenizer

// The tokens that mean something besides text: BOS, EOS, what ends generation, and the matcher that
// finds special tokens written out in the input. Rules of llama.cpp, whose converters write the
// files: metadata first, then well-known names.
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
  Token unknown = kNoToken;  // what text may become that is nothing else; never a control token
  Token separator = kNoToken;
  bool add_bos = false;
  bool add_eos = false;
  bool add_separator = false;            // between the two texts of a pair
  std::vector<Token> end_of_generation;  // sorted
  // Control tokens that are shown as text, and so have the type of user-defined ones.
  std::vector<Token> shown;

  // Takes what the metadata says over what is set, which are the kind's defaults (an id beyond the
  // vocabulary among the defaults is dropped, in the metadata it is an error), and marks tokens
  // with a well-known name as control tokens in `vocab`. Errors: kBadTokenizer.
  [[nodiscard]] Status read(const gguf::Header& header, Vocab* vocab);

 private:
  void find_end_of_generation(const gguf::Header& header, Vocab* vocab);
};

// Finds control, unknown and user-defined tokens in text: at each place the longest.
class SpecialMatcher {
 public:
  // `strip_right`: spaces after most special tokens are swallowed (the Phi-3 rule).
  [[nodiscard]] Status build(const Vocab& vocab, const SpecialTokens& specials, bool strip_right);

  struct Match {
    size_t begin = 0;
    size_t end = 0;          // of the token's text
    size_t resume = 0;       // where ordinary text goes on
    Token token = kNoToken;  // kNoToken: nothing found up to the end
  };
  // The first match at or after `from`, which never lies before an earlier call's. User-defined
  // tokens always count, the others only with `parse_special`, and neither they nor control tokens
  // that are shown in plain stretches.
  // `normalized`: only tokens that are looked for in normalized text, or only the others.
  [[nodiscard]] Match next(const Vocab& vocab, std::string_view text, size_t from,
                           bool parse_special, LiteralText* marked, bool normalized = false) const;
  [[nodiscard]] bool has_normalized() const { return !normalized_.empty(); }
  // What tokenizer.json says of some tokens: that they swallow the white space before or behind
  // them, or are looked for once the text is normalized.
  [[nodiscard]] Status read_flags(const gguf::Header& header, const Vocab& vocab);
  // Whether plain text never becomes this token, and other text may.
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

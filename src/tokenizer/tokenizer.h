// Converts text to token ids and back, for all tokenizer models of GGUF files. It is created from
// the header's metadata and owns compact copies of what it needs, so the header can be freed. It is
// immutable and thread-safe. The state of streaming detokenization is a separate class.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"

namespace sluice::tokenizer {

using Token = int32_t;

inline constexpr size_t kMaxPairTemplate = 64u << 10;  // bytes
inline constexpr uint64_t kMaxTextBytes = 1u << 30;    // of one text to encode

struct EncodeOptions {
  bool add_special = true;    // add BOS, and EOS or [SEP], as the metadata says
  bool parse_special = true;  // "<|im_end|>" in the text becomes the control token
  // The text continues earlier text: no BOS, no space before its first word, and no normalization
  // of its beginning.
  bool continuation = false;
  // Text between U+FDD0 and U+FDD1 is literal: no byte of it becomes part of a control token, but
  // user-defined tokens match. The marks are removed, paired or not, so words and merges can cross
  // their positions. See literal_spans.h.
  bool literal_spans = false;
};

class Tokenizer {
 public:
  // Errors: kBadTokenizer, kUnsupportedTokenizer; the message names the cause.
  [[nodiscard]] static Result<std::unique_ptr<Tokenizer>> create(const gguf::Header& header);
  virtual ~Tokenizer() = default;

  // Encodes UTF-8. Invalid bytes become byte tokens or U+FFFD, depending on the vocabulary. Takes
  // time linear in the text, and n log n inside one word. Working memory, including the result:
  // about 8 bytes per byte of ordinary text, and at most encode_memory() if the text is a single
  // word. Errors: kInvalidArgument (longer than kMaxTextBytes), kOutOfMemory; all memory is then
  // freed.
  [[nodiscard]] virtual Result<std::vector<Token>> try_encode(
      std::string_view text, const EncodeOptions& options = {}) const = 0;
  // The same, but ends the program when memory is out.
  [[nodiscard]] std::vector<Token> encode(std::string_view text,
                                          const EncodeOptions& options = {}) const;
  // The bytes of a token in running text. Control tokens have none unless `special`. May end inside
  // a UTF-8 character.
  [[nodiscard]] virtual std::string token_bytes(Token token, bool special = false) const = 0;
  // The text of ids. Removes the leading space that SentencePiece adds, depending on the metadata.
  [[nodiscard]] std::string decode(std::span<const Token> tokens, bool special = false) const;

  [[nodiscard]] virtual int32_t n_vocab() const = 0;
  [[nodiscard]] virtual Token bos() const = 0;  // -1 when there is none
  [[nodiscard]] virtual Token eos() const = 0;
  [[nodiscard]] virtual bool adds_bos() const = 0;
  [[nodiscard]] virtual bool adds_eos() const = 0;
  [[nodiscard]] virtual Token separator() const = 0;  // between the two texts of a pair; -1: none
  // The template of a pair for reranking, with {query} and {document}; empty: none.
  [[nodiscard]] virtual std::string_view pair_template() const = 0;
  [[nodiscard]] virtual bool is_end_of_generation(Token token) const = 0;      // EOS, EOT, ...
  [[nodiscard]] virtual std::span<const Token> end_of_generation() const = 0;  // these tokens
  [[nodiscard]] virtual bool is_control(Token token) const = 0;
  // The tokens that text becomes only outside of literal spans. A user's text that contains one
  // must be marked as literal.
  [[nodiscard]] virtual std::vector<Token> gated_tokens() const = 0;
  // True when decoding removes one space at the start of the text.
  [[nodiscard]] virtual bool strips_leading_space() const = 0;
  [[nodiscard]] virtual std::string_view piece(Token token) const = 0;  // as stored in the file
  [[nodiscard]] virtual uint64_t memory_bytes() const = 0;  // heap bytes, counted in the budget
};

// Upper bound of the peak memory of create(), from the header alone.
[[nodiscard]] uint64_t estimate_memory(const gguf::Header& header);

// Upper bound of the memory to encode valid UTF-8 of this length, including the result but not the
// text itself. Holds if the vocabulary's normalizer does not lengthen the text.
[[nodiscard]] constexpr uint64_t encode_memory(uint64_t text_bytes) {
  return 72 * text_bytes + (4 << 10);
}

// Converts tokens to valid UTF-8 as they arrive: keeps an incomplete character until its remaining
// bytes come, and replaces invalid bytes by U+FFFD.
class StreamDecoder {
 public:
  // `at_start`: the tokens begin a text, so the space that SentencePiece adds is removed. Leave it
  // false for generated tokens, which continue the prompt.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool at_start = false)
      : tokenizer_(&tokenizer), starts_text_(at_start), at_start_(at_start) {}
  // Appends a token. Returns the text that became complete, which may be empty.
  [[nodiscard]] std::string push(Token token, bool special = false);
  // The remaining text at the end, with U+FFFD for an incomplete character.
  [[nodiscard]] std::string finish();
  void reset();
  // True while a character is incomplete.
  [[nodiscard]] bool unfinished() const { return !pending_.empty(); }

 private:
  const Tokenizer* tokenizer_;
  std::string pending_;
  bool starts_text_;  // as constructed
  bool at_start_;     // no text has been output yet
};

}  // namespace sluice::tokenizer

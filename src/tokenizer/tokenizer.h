// Text to token ids and back, for every vocabulary kind that GGUF files carry. Built once from the
// header's metadata; owns compact copies of what it needs, so the header can be dropped. Immutable
// and thread-safe after creation; the streaming detokenizer is the only state, and it is separate.
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
  bool add_bos = true;  // add BOS (and EOS where the vocabulary asks for it) as the metadata says
  bool parse_special = true;  // "<|im_end|>" in the text becomes the control token
  // The text goes on from earlier text: it gets no BOS, no space before its first word, and its
  // beginning is not normalized as that of a text is.
  bool continues = false;
  // Stretches between U+FDD0 and U+FDD1 are plain: no control token is made of any byte of them
  // (user-defined tokens are). The marks themselves vanish, matched or not: words and merges run
  // across their places. See literal_spans.h.
  bool marked = false;
};

class Tokenizer {
 public:
  // Errors: kBadTokenizer, kUnsupportedTokenizer, each naming the thing.
  [[nodiscard]] static Result<std::unique_ptr<Tokenizer>> create(const gguf::Header& header);
  virtual ~Tokenizer() = default;

  // UTF-8 (invalid bytes are encoded as bytes or U+FFFD as the vocabulary allows) to ids. Takes
  // time linear in the text, n log n inside one word. Working memory, the result included: about 8
  // bytes for a byte of ordinary text, at most encode_memory() where the text is one endless word.
  // Errors: kInvalidArgument (longer than kMaxTextBytes), kOutOfMemory; nothing is held after them.
  [[nodiscard]] virtual Result<std::vector<Token>> try_encode(
      std::string_view text, const EncodeOptions& options = {}) const = 0;
  // The same for programs that end when memory does.
  [[nodiscard]] std::vector<Token> encode(std::string_view text,
                                          const EncodeOptions& options = {}) const;
  // The bytes that a token stands for in running text; control tokens are empty unless
  // `special`. May end inside a UTF-8 character.
  [[nodiscard]] virtual std::string token_bytes(Token token, bool special = false) const = 0;
  // The text of ids, as streamed: the leading space that SentencePiece adds is removed where the
  // metadata says so.
  [[nodiscard]] std::string decode(std::span<const Token> tokens, bool special = false) const;

  [[nodiscard]] virtual int32_t n_vocab() const = 0;
  [[nodiscard]] virtual Token bos() const = 0;  // -1 when there is none
  [[nodiscard]] virtual Token eos() const = 0;
  [[nodiscard]] virtual bool adds_bos() const = 0;
  [[nodiscard]] virtual bool adds_eos() const = 0;
  [[nodiscard]] virtual Token separator() const = 0;  // between the two texts of a pair; -1: none
  // The text that a pair is put into for ranking, at {query} and {document}; empty: none.
  [[nodiscard]] virtual std::string_view pair_template() const = 0;
  [[nodiscard]] virtual bool is_end_of_generation(Token token) const = 0;  // EOS, EOT, ...
  [[nodiscard]] virtual bool is_control(Token token) const = 0;
  // The tokens that plain text never becomes and other text may: those whose texts have to be
  // marked as plain where a user wrote them.
  [[nodiscard]] virtual std::vector<Token> gated_tokens() const = 0;
  // True when decoding must drop the one space that starts the text.
  [[nodiscard]] virtual bool strips_leading_space() const = 0;
  [[nodiscard]] virtual std::string_view piece(Token token) const = 0;  // as stored in the file
  [[nodiscard]] virtual uint64_t memory_bytes() const = 0;  // heap held, for the budget's account
};

// Upper bound of memory that create() will hold and use at its peak, from the header alone.
[[nodiscard]] uint64_t estimate_memory(const gguf::Header& header);

// Upper bound of the memory that encoding valid UTF-8 of this length takes, the result included and
// the text itself not, where the vocabulary's normalizer does not lengthen it.
[[nodiscard]] constexpr uint64_t encode_memory(uint64_t text_bytes) {
  return 72 * text_bytes + (4 << 10);
}

// Turns token bytes into text that is always whole UTF-8: an unfinished character waits for its
// rest, invalid bytes become U+FFFD.
class StreamDecoder {
 public:
  // `at_start`: the tokens begin a text, so that a space SentencePiece added is dropped. Generated
  // tokens continue the prompt: leave it false for them.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool at_start = false)
      : tokenizer_(&tokenizer), starts_text_(at_start), at_start_(at_start) {}
  // Appends one token; returns the text that became complete (may be empty).
  [[nodiscard]] std::string push(Token token, bool special = false);
  // What is left at the end, with U+FFFD for an unfinished character.
  [[nodiscard]] std::string finish();
  void reset();
  // True while the beginning of a character waits for its rest.
  [[nodiscard]] bool unfinished() const { return !pending_.empty(); }

 private:
  const Tokenizer* tokenizer_;
  std::string pending_;
  bool starts_text_;  // as constructed
  bool at_start_;     // nothing has been shown yet
};

}  // namespace sluice::tokenizer

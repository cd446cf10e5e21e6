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

struct EncodeOptions {
  bool add_bos = true;  // add BOS (and EOS where the vocabulary asks for it) as the metadata says
  bool parse_special = true;  // "<|im_end|>" in the text becomes the control token
};

class Tokenizer {
 public:
  // Errors: kBadTokenizer, kUnsupportedTokenizer, each naming the thing.
  [[nodiscard]] static Result<std::unique_ptr<Tokenizer>> create(const gguf::Header& header);
  virtual ~Tokenizer() = default;

  // UTF-8 (invalid bytes are encoded as bytes or U+FFFD as the vocabulary allows) to ids. Takes
  // time linear in the text, n log n inside one word. Working memory, the result included: about 8
  // bytes for a byte of ordinary text, up to 60 where the text is one endless word.
  [[nodiscard]] virtual std::vector<Token> encode(std::string_view text,
                                                  const EncodeOptions& options = {}) const = 0;
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
  [[nodiscard]] virtual bool is_end_of_generation(Token token) const = 0;  // EOS, EOT, ...
  [[nodiscard]] virtual bool is_control(Token token) const = 0;
  // True when decoding must drop the one space that starts the text.
  [[nodiscard]] virtual bool strips_leading_space() const = 0;
  [[nodiscard]] virtual std::string_view piece(Token token) const = 0;  // as stored in the file
  [[nodiscard]] virtual uint64_t memory_bytes() const = 0;  // heap held, for the budget's account
};

// Upper bound of memory that create() will hold and use at its peak, from the header alone.
[[nodiscard]] uint64_t estimate_memory(const gguf::Header& header);

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

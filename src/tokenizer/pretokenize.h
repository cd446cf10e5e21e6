// Pre-tokenizers split text into words before byte-level BPE merges inside them. Each family
// publishes a list of regular expressions. Here each expression is a hand-written scanner, and a
// pre-tokenizer is a short list of nested scanners: each splits the matches of the previous one,
// and the text between them. No scanner looks back, so the time is linear.
#pragma once

#include <span>
#include <string_view>

namespace sluice::tokenizer {

// A scanner's result at a position: [pos, end) is a match, or no match starts in [pos, end).
struct Piece {
  size_t end = 0;
  bool matched = true;
};

// `text` is valid UTF-8, pos < text.size() and at a character.
using Scanner = Piece (*)(std::string_view text, size_t pos);

struct PreTokenizer {
  std::string_view name;  // tokenizer.ggml.pre
  std::span<const Scanner> passes;
  bool ignore_merges = false;  // a word that is a token needs no merges
  bool add_bos = false;        // the default, if the file does not specify it
};

// Null when the name is unknown.
[[nodiscard]] const PreTokenizer* find_pre_tokenizer(std::string_view name);

class WordSink {
 public:
  virtual void word(std::string_view text) = 0;

 protected:
  ~WordSink() = default;
};

// Splits `text` (valid UTF-8) into words that cover all of it, and passes them to the sink in
// order.
void pre_tokenize(std::string_view text, std::span<const Scanner> passes, WordSink* sink);

}  // namespace sluice::tokenizer

// Pre-tokenizers: how byte-level BPE cuts text into words before merging. Each family publishes a
// list of regular expressions; here each expression is a hand-written scanner, and a pre-tokenizer
// is a short list of scanners applied one inside the other: what one matches, and what lies between
// its matches, is cut further by the next. No scanner looks back, so the whole is linear.
#pragma once

#include <span>
#include <string_view>

namespace sluice::tokenizer {

// What a scanner says about a position: [pos, end) is a match, or nothing in [pos, end) starts one.
struct Piece {
  size_t end = 0;
  bool matched = true;
};

// `text` is valid UTF-8, pos < text.size() and at a character.
using Scanner = Piece (*)(std::string_view text, size_t pos);

struct PreTokenizer {
  std::string_view name;  // tokenizer.ggml.pre
  std::span<const Scanner> passes;
  bool ignore_merges = false;  // a word that is a token is taken whole
  bool add_bos = false;        // when the file does not say
};

// Null when the name is unknown.
[[nodiscard]] const PreTokenizer* find_pre_tokenizer(std::string_view name);

class WordSink {
 public:
  virtual void word(std::string_view text) = 0;

 protected:
  ~WordSink() = default;
};

// TextChunks `text` (valid UTF-8) and hands every word to the sink, in order, nothing left out.
void pre_tokenize(std::string_view text, std::span<const Scanner> passes, WordSink* sink);

}  // namespace sluice::tokenizer

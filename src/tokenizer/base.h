// The part that all tokenizer models share: the vocabulary, the special tokens, and the function
// that splits a text at special tokens. The model then encodes the text between them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/merge.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocab.h"

namespace sluice::tokenizer {

// U+2581, which stands for a space in SentencePiece vocabularies.
inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";
// Replaces the marks by spaces.
[[nodiscard]] std::string unmark_spaces(std::string_view text);

class BaseTokenizer : public Tokenizer {
 public:
  [[nodiscard]] Result<std::vector<Token>> try_encode(std::string_view text,
                                                      const EncodeOptions& options) const final;
  [[nodiscard]] std::string token_bytes(Token token, bool special) const final;
  [[nodiscard]] int32_t n_vocab() const final { return vocab_.size(); }
  [[nodiscard]] Token bos() const final { return specials_.bos; }
  [[nodiscard]] Token eos() const final { return specials_.eos; }
  [[nodiscard]] bool adds_bos() const final { return specials_.add_bos; }
  [[nodiscard]] bool adds_eos() const final { return specials_.add_eos; }
  [[nodiscard]] Token separator() const final {
    return specials_.add_separator ? specials_.separator : kNoToken;
  }
  [[nodiscard]] std::string_view pair_template() const final { return pair_template_; }
  [[nodiscard]] bool is_end_of_generation(Token token) const final;
  [[nodiscard]] std::span<const Token> end_of_generation() const final {
    return specials_.end_of_generation;
  }
  [[nodiscard]] bool is_control(Token token) const final;
  [[nodiscard]] std::vector<Token> gated_tokens() const final;
  [[nodiscard]] bool strips_leading_space() const override { return false; }
  [[nodiscard]] std::string_view piece(Token token) const final;
  [[nodiscard]] uint64_t memory_bytes() const override;

 protected:
  // Encodes text without special tokens. `starts` means that it begins the input or follows a
  // special token. When memory is out, sets scratch->out_of_memory, and *out is undefined.
  virtual void encode_text(std::string_view text, bool starts, MergeScratch* scratch,
                           std::vector<Token>* out) const = 0;
  // The bytes of a token that is not a control token.
  [[nodiscard]] virtual std::string text_bytes(Token token) const = 0;
  // Reads vocabulary and special tokens. `specials_` must have the model's defaults before.
  [[nodiscard]] Status read_common(const gguf::Header& header, bool repeats = false);

  void encode_stretch(std::string_view text, bool starts, const EncodeOptions& options,
                      MergeScratch* scratch, std::vector<Token>* out) const;

  Vocab vocab_;
  SpecialTokens specials_;
  SpecialMatcher matcher_;
  std::string pair_template_;
  bool nfc_ = false;  // the text is normalized to NFC
  // Rules of tokenizer.json's Metaspace: adds no space before a text that begins with one, and if
  // `starts_once_`, none after special tokens.
  bool metaspace_ = false, starts_once_ = false;
};

using TokenizerResult = Result<std::unique_ptr<Tokenizer>>;

// tokenizer.ggml.model = "llama": SentencePiece BPE; "gemma4": the same with a list of merges.
[[nodiscard]] TokenizerResult create_sentencepiece(const gguf::Header& header);
// tokenizer.ggml.model = "gpt2": byte-level BPE.
[[nodiscard]] TokenizerResult create_byte_bpe(const gguf::Header& header);
// tokenizer.ggml.model = "bert": WordPiece.
[[nodiscard]] TokenizerResult create_wordpiece(const gguf::Header& header);
// tokenizer.ggml.model = "t5": SentencePiece unigram.
[[nodiscard]] TokenizerResult create_unigram(const gguf::Header& header);

}  // namespace sluice::tokenizer

// Byte-level BPE (tokenizer.ggml.model = "gpt2": GPT-2, Llama 3, Qwen, DeepSeek, Phi-2 and most
// others). The family's pre-tokenizer splits text into words, and inside a word bytes merge in the
// order of the merge list. Vocabularies represent bytes by printable characters (a space is
// U+0120). Only loading a vocabulary and piece() use this representation.
#include <array>
#include <cstdio>

#include "tokenizer/base.h"
#include "tokenizer/merge_table.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/utf8.h"

namespace sluice::tokenizer {

namespace {

// GPT-2's byte alphabet: printable Latin-1 maps to itself, the other bytes to 256, 257, ... in
// order.
struct ByteAlphabet {
  std::array<uint16_t, 256> codepoint{};  // of a byte
  std::array<int16_t, 324> byte{};        // of a code point, -1: none
  std::array<char, 512> utf8{};           // two bytes for each byte's code point
  std::array<uint8_t, 256> utf8_bytes{};  // 1 or 2

  constexpr ByteAlphabet() {
    for (auto& b : byte) b = -1;
    uint16_t next = 256;
    for (uint16_t b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      codepoint[b] = printable ? b : next++;
      byte[codepoint[b]] = static_cast<int16_t>(b);
      const uint16_t cp = codepoint[b];
      utf8_bytes[b] = cp < 0x80 ? 1 : 2;
      utf8[2 * b] = static_cast<char>(cp < 0x80 ? cp : 0xC0 | cp >> 6);
      utf8[2 * b + 1] = static_cast<char>(0x80 | (cp & 0x3F));
    }
  }
  [[nodiscard]] std::string_view spelling(uint8_t b) const {
    return {utf8.data() + 2 * b, utf8_bytes[b]};
  }
};

constexpr ByteAlphabet kAlphabet;

class ByteBpe final : public BaseTokenizer {
 public:
  [[nodiscard]] Status load(const gguf::Header& header);
  [[nodiscard]] uint64_t memory_bytes() const override {
    return BaseTokenizer::memory_bytes() + merges_.memory_bytes() +
           (sizeof(ByteBpe) - sizeof(BaseTokenizer));
  }

 protected:
  void encode_text(std::string_view text, bool starts, MergeScratch* scratch,
                   std::vector<Token>* out) const override;
  [[nodiscard]] std::string text_bytes(Token token) const override;

 private:
  friend class WordEncoder;
  [[nodiscard]] Status find_bytes();
  [[nodiscard]] Token find_word(std::string_view word) const;
  void encode_word(std::string_view word, MergeScratch* scratch, std::vector<Token>* out) const;

  const PreTokenizer* pre_ = nullptr;
  MergeTable merges_;
  std::array<Token, 256> byte_tokens_{};
};

class WordEncoder final : public WordSink {
 public:
  WordEncoder(const ByteBpe& bpe, MergeScratch* scratch, std::vector<Token>* out)
      : bpe_(bpe), scratch_(scratch), out_(out) {}
  void word(std::string_view text) override { bpe_.encode_word(text, scratch_, out_); }

 private:
  const ByteBpe& bpe_;
  MergeScratch* scratch_;
  std::vector<Token>* out_;
};

Status ByteBpe::load(const gguf::Header& header) {
  // Files without the key are older than it; llama.cpp uses its first rule for them.
  const std::string name(header.get_string("tokenizer.ggml.pre").value_or("default"));
  pre_ = find_pre_tokenizer(name);
  if (pre_ == nullptr) {
    return error(Code::kUnsupportedTokenizer, "pre-tokenizer \"%.64s\" is not supported",
                 name.c_str());
  }
  const bool is_glm = name == "glm4" || name == "chatglm-bpe";
  specials_.bos = is_glm ? kNoToken : 11;  // old GPT-2 files rely on 11
  specials_.eos = 11;
  specials_.add_bos = pre_->add_bos;
  SLUICE_RETURN_IF_ERROR(read_common(header));
  SLUICE_RETURN_IF_ERROR(merges_.load(header, vocab_));
  return find_bytes();
}

Status ByteBpe::find_bytes() {
  for (int b = 0; b < 256; ++b) {
    Token id = vocab_.find_text(kAlphabet.spelling(static_cast<uint8_t>(b)));
    if (id == kNoToken) id = specials_.unknown;
    // Falcon, for example, lacks bytes that never occurred in its training data. They are dropped,
    // as in llama.cpp.
    const bool common =
        (b >= 0x20 && b <= 0x7E) || (b >= 0x80 && b <= 0xEF && b != 0xC0 && b != 0xC1);
    if (id == kNoToken && common) {
      return error(Code::kBadTokenizer, "there is no token for byte 0x%02X", b);
    }
    byte_tokens_[static_cast<size_t>(b)] = id;
  }
  return {};
}

void ByteBpe::encode_text(std::string_view text, bool, MergeScratch* scratch,
                          std::vector<Token>* out) const {
  WordEncoder encoder(*this, scratch, out);
  if (is_valid_utf8(text)) {
    pre_tokenize(text, pre_->passes, &encoder);
  } else {
    std::string valid;
    if (!make_room(&valid, kReplacement.size() * text.size())) {
      scratch->out_of_memory = true;
      return;
    }
    append_valid_utf8(text, Replace::kEachByte, &valid);
    pre_tokenize(valid, pre_->passes, &encoder);
  }
}

// The token with exactly this text.
Token ByteBpe::find_word(std::string_view word) const {
  char spelled[512];
  size_t n = 0;
  if (word.size() > sizeof spelled / 2) return kNoToken;
  for (const char c : word) {
    const std::string_view spelling = kAlphabet.spelling(static_cast<uint8_t>(c));
    spelled[n++] = spelling[0];
    if (spelling.size() == 2) spelled[n++] = spelling[1];
  }
  return vocab_.find_text({spelled, n});
}

void ByteBpe::encode_word(std::string_view word, MergeScratch* scratch,
                          std::vector<Token>* out) const {
  auto& symbols = scratch->symbols;
  if (scratch->out_of_memory || !make_room_for(out, word.size()) ||
      !renew_room(&symbols, word.size())) {
    scratch->out_of_memory = true;
    return;
  }
  if (pre_->ignore_merges) {
    const Token id = find_word(word);
    if (id != kNoToken) {
      out->push_back(id);
      return;
    }
  }
  for (size_t i = 0; i < word.size(); ++i) {
    symbols.push_back({static_cast<uint32_t>(i), 1, byte_tokens_[static_cast<uint8_t>(word[i])]});
  }
  merge_symbols(scratch, [this](const Symbol& left, const Symbol& right) {
    return merges_.find(left.id, right.id);
  });
  for (const Symbol& symbol : symbols) {
    if (symbol.id != kNoToken) out->push_back(symbol.id);
  }
}

std::string ByteBpe::text_bytes(Token token) const {
  const std::string_view text = vocab_.text(token);
  if (vocab_.type(token) == TokenType::kUserDefined) return std::string(text);
  std::string result;
  result.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const Decoded c = decode_utf8(text, pos);
    const int byte = c.cp < kAlphabet.byte.size() ? kAlphabet.byte[c.cp] : -1;
    if (byte >= 0) {
      result += static_cast<char>(byte);
    } else {
      result += text.substr(pos, c.bytes);  // not in the byte alphabet: copied
    }
    pos += c.bytes;
  }
  return result;
}

}  // namespace

TokenizerResult create_byte_bpe(const gguf::Header& header) {
  auto tokenizer = std::make_unique<ByteBpe>();
  SLUICE_RETURN_IF_ERROR(tokenizer->load(header));
  return TokenizerResult(std::unique_ptr<Tokenizer>(std::move(tokenizer)));
}

}  // namespace sluice::tokenizer

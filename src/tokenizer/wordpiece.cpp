// WordPiece (tokenizer.ggml.model = "bert"; Schuster, Nakajima 2012, as in BERT). Words end at
// white space, punctuation and Chinese characters. Each is split from left to right into the
// longest matching tokens. The first one has U+2581 before it in the vocabulary. A word that cannot
// be split becomes the unknown token.
#include <algorithm>
#include <iterator>

#include "tokenizer/base.h"
#include "tokenizer/fold.h"
#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

namespace sluice::tokenizer {

namespace {

constexpr uint64_t kMaxPieceBytes = 1024;  // of a token, so that the work per byte is bounded

// Unicode's Cc, Cf and Co: they are removed.
constexpr CodePoints kControls[] = {
    {0x0, 0x1F},        {0x7F, 0x9F},         {0xAD, 0xAD},       {0x600, 0x605},
    {0x61C, 0x61C},     {0x6DD, 0x6DD},       {0x70F, 0x70F},     {0x890, 0x891},
    {0x8E2, 0x8E2},     {0x180E, 0x180E},     {0x200B, 0x200F},   {0x202A, 0x202E},
    {0x2060, 0x2064},   {0x2066, 0x206F},     {0xE000, 0xF8FF},   {0xFEFF, 0xFEFF},
    {0xFFF9, 0xFFFB},   {0x110BD, 0x110BD},   {0x110CD, 0x110CD}, {0x13430, 0x1343F},
    {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A},   {0xE0001, 0xE0001}, {0xE0020, 0xE007F},
    {0xF0000, 0xFFFFD}, {0x100000, 0x10FFFD},
};

// Chinese characters as BERT lists them, including the gap before U+2B920.
constexpr CodePoints kChinese[] = {
    {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},   {0x20000, 0x2A6DF},
    {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F},
};

template <size_t N>
bool within(const CodePoints (&ranges)[N], uint32_t cp) {
  const CodePoints* range =
      std::lower_bound(std::begin(ranges), std::end(ranges), cp,
                       [](const CodePoints& r, uint32_t c) { return r.last < c; });
  return range != std::end(ranges) && range->first <= cp;
}

class WordPiece final : public BaseTokenizer {
 public:
  [[nodiscard]] Status load(const gguf::Header& header);
  [[nodiscard]] bool strips_leading_space() const override { return true; }
  [[nodiscard]] uint64_t memory_bytes() const override {
    return BaseTokenizer::memory_bytes() + index_.memory_bytes() +
           (sizeof(WordPiece) - sizeof(BaseTokenizer));
  }

 protected:
  void encode_text(std::string_view text, bool starts, MergeScratch* scratch,
                   std::vector<Token>* out) const override;
  [[nodiscard]] std::string text_bytes(Token token) const override {
    return unmark_spaces(vocab_.text(token));
  }

 private:
  [[nodiscard]] Status read_specials(const gguf::Header& header);
  [[nodiscard]] Status build_index();
  void encode_word(std::string_view word, uint64_t characters, std::vector<Token>* out) const;

  PrefixIndex index_;  // tokens that text can become
  bool lower_ = true;
  bool chinese_ = true;  // each Chinese character is a word
  Accents accents_ = Accents::kFirst;
  uint64_t longest_word_ = UINT64_MAX;  // in characters; a longer one is unknown
};

Status WordPiece::load(const gguf::Header& header) {
  SLUICE_RETURN_IF_ERROR(read_specials(header));
  // Settings of a tokenizer.json that GGUF has no keys for.
  if (const auto strip = header.get_bool("tokenizer.sluice.strip_accents")) {
    accents_ = *strip ? Accents::kStrip : Accents::kKeep;
  }
  lower_ = header.get_bool("tokenizer.sluice.lowercase").value_or(true);
  chinese_ = header.get_bool("tokenizer.sluice.chinese_words").value_or(true);
  longest_word_ = header.get_u64("tokenizer.sluice.longest_word").value_or(UINT64_MAX);
  return build_index();
}

// [CLS] and [SEP] are added around every text, as BOS and EOS.
Status WordPiece::read_specials(const gguf::Header& header) {
  specials_.bos = 101;
  specials_.unknown = 100;
  specials_.separator = 102;
  const bool cls = header.find("tokenizer.ggml.bos_token_id") == nullptr;
  SLUICE_RETURN_IF_ERROR(read_common(header));
  const auto id = header.get_u64("tokenizer.ggml.cls_token_id");
  if (cls && id) {
    specials_.bos = *id < static_cast<uint64_t>(vocab_.size()) ? static_cast<Token>(*id) : kNoToken;
  }
  if (specials_.unknown == kNoToken) {
    return error(Code::kBadTokenizer, "a WordPiece vocabulary needs an unknown token");
  }
  if (specials_.separator != kNoToken) specials_.eos = specials_.separator;
  specials_.add_bos = specials_.bos != kNoToken;
  specials_.add_eos = specials_.eos != kNoToken;
  return {};
}

Status WordPiece::build_index() {
  for (Token id = 0; id < vocab_.size(); ++id) {
    const TokenType type = vocab_.type(id);
    if (type != TokenType::kNormal && type != TokenType::kUserDefined) continue;
    if (vocab_.text(id).size() > kMaxPieceBytes) {
      return error(Code::kBadTokenizer, "the token %d has %zu bytes, which is too long", id,
                   vocab_.text(id).size());
    }
    index_.add(id);
  }
  index_.sort(vocab_);
  return {};
}

void WordPiece::encode_word(std::string_view word, uint64_t characters,
                            std::vector<Token>* out) const {
  const size_t before = out->size();
  for (size_t pos = 0; pos < word.size();) {
    Token longest = kNoToken;
    if (characters <= longest_word_) {
      index_.walk(vocab_, word, pos, [&](Token id) { longest = id; });
    }
    if (longest == kNoToken) {
      out->resize(before);
      out->push_back(specials_.unknown);
      return;
    }
    out->push_back(longest);
    pos += vocab_.text(longest).size();
  }
}

void WordPiece::encode_text(std::string_view text, bool, MergeScratch* scratch,
                            std::vector<Token>* out) const {
  std::string valid, folded, word;
  scratch->out_of_memory = !make_room(&valid, kReplacement.size() * text.size());
  if (scratch->out_of_memory) return;
  append_valid_utf8(text, Replace::kEachByte, &valid);
  scratch->out_of_memory = !fold_text(valid, lower_, accents_, &folded);
  std::string().swap(valid);
  // A word gives at most as many tokens as it has bytes, and the mark is added before it.
  scratch->out_of_memory = scratch->out_of_memory ||
                           !make_room(&word, folded.size() + kSpaceMark.size()) ||
                           !make_room_for(out, folded.size() + 1);
  if (scratch->out_of_memory) return;
  uint64_t characters = 0;
  const auto add = [&](std::string_view character) {
    if (characters++ == 0) word = kSpaceMark;
    word += character;
  };
  const auto flush = [&] {
    if (characters > 0) encode_word(word, characters, out);
    characters = 0;
  };
  for (size_t pos = 0; pos < folded.size();) {
    const Decoded c = decode_utf8(folded, pos);
    const std::string_view character = std::string_view(folded).substr(pos, c.bytes);
    const CharClass kind = char_class(c.cp);
    pos += c.bytes;
    const bool alone = kind == CharClass::kPunctuation ||
                       (c.cp < 0x7F && kind == CharClass::kSymbol) ||
                       (chinese_ && within(kChinese, c.cp));
    if (kind == CharClass::kSpace || alone) flush();
    if (kind == CharClass::kSpace || c.cp == 0xFFFD) continue;
    if (kind == CharClass::kOther && within(kControls, c.cp)) continue;
    add(character);
    if (alone) flush();
  }
  flush();
}

}  // namespace

TokenizerResult create_wordpiece(const gguf::Header& header) {
  auto tokenizer = std::make_unique<WordPiece>();
  SLUICE_RETURN_IF_ERROR(tokenizer->load(header));
  return TokenizerResult(std::unique_ptr<Tokenizer>(std::move(tokenizer)));
}

}  // namespace sluice::tokenizer

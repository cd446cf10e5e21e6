// SentencePiece BPE (tokenizer.ggml.model = "llama": Llama 2, Mistral, Gemma, Phi-3, TinyLlama; and
// "gemma4", whose files list the merges instead of scores, and whose newlines are separate words).
// Spaces become U+2581. Of all neighbours whose joined text is a token, the pair of highest score
// merges first. SentencePiece itself merges over the whole text. Here the text is first split
// between characters that are adjacent in no token. No merge can cross such a place, so words stay
// short and the result is the same.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/sort.h"
#include "tokenizer/base.h"
#include "tokenizer/merge_table.h"
#include "tokenizer/utf8.h"

namespace sluice::tokenizer {

namespace {

// The pairs of characters that are adjacent in some token, as a hashed bit set. A false positive
// costs a little time and does not change the result.
class AdjacencySet {
 public:
  void resize_for(size_t n_pairs) {
    size_t words = 256;
    while (words * 64 < n_pairs * 8 && words < kMaxWords) words *= 2;
    bits_.assign(words, 0);
  }
  void add(uint32_t left, uint32_t right) {
    const size_t bit = index(left, right);
    bits_[bit / 64] |= uint64_t{1} << (bit % 64);
  }
  [[nodiscard]] bool has(uint32_t left, uint32_t right) const {
    const size_t bit = index(left, right);
    return (bits_[bit / 64] >> (bit % 64) & 1) != 0;
  }
  [[nodiscard]] uint64_t memory_bytes() const { return bits_.capacity() * sizeof(uint64_t); }

 private:
  static constexpr size_t kMaxWords = 1u << 15;  // 256 kB

  [[nodiscard]] size_t index(uint32_t left, uint32_t right) const {
    const uint64_t key = static_cast<uint64_t>(left) << 32 | right;
    return static_cast<size_t>((key * 0x9E3779B97F4A7C15ull) >> 40) & (bits_.size() * 64 - 1);
  }

  std::vector<uint64_t> bits_;
};

// The length of a character; an invalid byte is a character of its own.
size_t character_length(std::string_view text, size_t pos) {
  if (static_cast<uint8_t>(text[pos]) < 0x80) return 1;
  const Decoded c = decode_utf8(text, pos);
  return c.cp == kInvalidCodepoint ? 1 : c.bytes;
}

size_t count_characters(std::string_view text) {
  size_t n = 0;
  for (size_t pos = 0; pos < text.size(); ++n) pos += character_length(text, pos);
  return n;
}

// A character as a number, for the adjacency set.
uint32_t pack_character(std::string_view bytes) {
  uint32_t packed = 0;
  for (const char c : bytes) packed = packed << 8 | static_cast<uint8_t>(c);
  return packed;
}

class SentencePiece final : public BaseTokenizer {
 public:
  [[nodiscard]] Status load(const gguf::Header& header);
  [[nodiscard]] bool strips_leading_space() const override { return add_space_prefix_; }
  [[nodiscard]] uint64_t memory_bytes() const override {
    return BaseTokenizer::memory_bytes() + ranks_.capacity() * sizeof(uint32_t) +
           adjacent_.memory_bytes() + merges_.memory_bytes() +
           (sizeof(SentencePiece) - sizeof(BaseTokenizer));
  }

 protected:
  void encode_text(std::string_view text, bool starts, MergeScratch* scratch,
                   std::vector<Token>* out) const override;
  [[nodiscard]] std::string text_bytes(Token token) const override;

 private:
  [[nodiscard]] Status read_ranks(const gguf::Header& header);
  [[nodiscard]] Status find_bytes();
  void find_adjacent();
  [[nodiscard]] Token find_mergeable(std::string_view text) const;
  [[nodiscard]] bool normalize(std::string_view text, bool starts, std::string* result) const;
  void encode_word(std::string_view word, MergeScratch* scratch, std::vector<Token>* out) const;

  std::vector<uint32_t> ranks_;  // [n_vocab] position of a token's score in descending order
  Token byte_tokens_[256] = {};
  AdjacencySet adjacent_;
  MergeTable merges_;
  bool listed_ = false;  // the file lists the merges
  bool add_space_prefix_ = true;
  bool remove_extra_whitespaces_ = false;
};

Status SentencePiece::load(const gguf::Header& header) {
  listed_ = header.get_string("tokenizer.ggml.model") == "gemma4";
  if (!listed_) {
    specials_.bos = 1;
    specials_.eos = 2;
    specials_.unknown = 0;
    specials_.add_bos = true;
  }
  SLUICE_RETURN_IF_ERROR(read_common(header, listed_));
  if (listed_) SLUICE_RETURN_IF_ERROR(merges_.load(header, vocab_));
  add_space_prefix_ = header.get_bool("tokenizer.ggml.add_space_prefix").value_or(!listed_);
  remove_extra_whitespaces_ =
      header.get_bool("tokenizer.ggml.remove_extra_whitespaces").value_or(false);
  SLUICE_RETURN_IF_ERROR(read_ranks(header));
  SLUICE_RETURN_IF_ERROR(find_bytes());
  find_adjacent();
  return {};
}

// Scores are only compared, so they are stored as integer ranks; equal scores have equal ranks.
Status SentencePiece::read_ranks(const gguf::Header& header) {
  const auto n = static_cast<size_t>(vocab_.size());
  ranks_.assign(n, 0);
  const gguf::Value* scores = header.find("tokenizer.ggml.scores");
  if (scores == nullptr) return {};
  if (scores->type != gguf::ValueType::kArray || scores->count != n) {
    return error(Code::kBadTokenizer, "tokenizer.ggml.scores has %llu entries for %zu tokens",
                 static_cast<unsigned long long>(scores->count), n);
  }
  std::vector<float> distinct(n);
  for (size_t i = 0; i < n; ++i) {
    distinct[i] = static_cast<float>(scores->number_at(i));
    if (std::isnan(distinct[i])) {
      return error(Code::kBadTokenizer, "the score of token %zu is not a number", i);
    }
  }
  heap_sort(distinct, std::greater<float>());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  for (size_t i = 0; i < n; ++i) {
    const auto score = static_cast<float>(scores->number_at(i));
    const auto at =
        std::lower_bound(distinct.begin(), distinct.end(), score, std::greater<float>());
    ranks_[i] = static_cast<uint32_t>(at - distinct.begin());
  }
  return {};
}

Status SentencePiece::find_bytes() {
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    Token id = vocab_.find_text(name);
    const char raw = static_cast<char>(byte);
    if (id == kNoToken) id = vocab_.find_text({&raw, 1});
    if (id == kNoToken) id = specials_.unknown;
    if (id == kNoToken) {
      return error(Code::kBadTokenizer, "there is no token %s and no unknown token", name);
    }
    byte_tokens_[byte] = id;
  }
  return {};
}

void SentencePiece::find_adjacent() {
  size_t bytes = 0;
  for (Token id = 0; id < vocab_.size(); ++id) bytes += vocab_.text(id).size();
  adjacent_.resize_for(bytes / 8);
  for (Token id = 0; id < vocab_.size(); ++id) {
    const std::string_view text = vocab_.text(id);
    uint32_t before = 0;
    for (size_t pos = 0; pos < text.size();) {
      const std::string_view character = text.substr(pos, character_length(text, pos));
      const uint32_t packed = pack_character(character);
      if (pos > 0) adjacent_.add(before, packed);
      before = packed;
      pos += character.size();
    }
  }
}

// Ordinary text never becomes a control, unknown or byte token.
Token SentencePiece::find_mergeable(std::string_view text) const {
  const Token id = vocab_.find_text(text);
  if (id == kNoToken) return id;
  const TokenType type = vocab_.type(id);
  const bool forbidden = type == TokenType::kUnknown || type == TokenType::kByte;
  return forbidden ? kNoToken : id;
}

// False when memory is out.
bool SentencePiece::normalize(std::string_view text, bool starts, std::string* result) const {
  const auto spaces = static_cast<size_t>(std::count(text.begin(), text.end(), ' '));
  if (!make_room(result, text.size() + 2 * spaces + kSpaceMark.size())) return false;
  const bool has_one = metaspace_ && (text.starts_with(' ') || text.starts_with(kSpaceMark));
  if (starts && add_space_prefix_ && !has_one) *result += kSpaceMark;
  bool after_space = remove_extra_whitespaces_ && starts;
  for (const char c : text) {
    if (c != ' ') {
      *result += c;
    } else if (!after_space) {
      *result += kSpaceMark;
    }
    after_space = remove_extra_whitespaces_ && c == ' ';
  }
  return true;
}

void SentencePiece::encode_text(std::string_view text, bool starts, MergeScratch* scratch,
                                std::vector<Token>* out) const {
  std::string normalized;
  if (!normalize(text, starts, &normalized)) {
    scratch->out_of_memory = true;
    return;
  }
  const std::string_view all = normalized;
  size_t word = 0;
  uint32_t before = 0;
  for (size_t pos = 0; pos < all.size();) {
    const std::string_view character = all.substr(pos, character_length(all, pos));
    const uint32_t packed = pack_character(character);
    const bool line_ends = listed_ && (before == '\n') != (packed == '\n');
    if (pos > word && (line_ends || !adjacent_.has(before, packed))) {
      encode_word(all.substr(word, pos - word), scratch, out);
      word = pos;
    }
    before = packed;
    pos += character.size();
  }
  if (word < all.size()) encode_word(all.substr(word), scratch, out);
}

void SentencePiece::encode_word(std::string_view word, MergeScratch* scratch,
                                std::vector<Token>* out) const {
  auto& symbols = scratch->symbols;
  if (scratch->out_of_memory || !make_room_for(out, word.size()) ||
      !renew_room(&symbols, count_characters(word))) {
    scratch->out_of_memory = true;
    return;
  }
  if (listed_ && word[0] == '\n') {
    if (const Token whole = find_mergeable(word); whole != kNoToken) {
      out->push_back(whole);
      return;
    }
  }
  for (size_t pos = 0; pos < word.size();) {
    const std::string_view character = word.substr(pos, character_length(word, pos));
    symbols.push_back({static_cast<uint32_t>(pos), static_cast<uint32_t>(character.size()),
                       listed_ ? find_mergeable(character) : kNoToken});
    pos += character.size();
  }
  merge_symbols(scratch, [&](const Symbol& left, const Symbol& right) {
    if (listed_) {
      const bool tokens = left.id != kNoToken && right.id != kNoToken;
      return tokens ? merges_.find(left.id, right.id) : Merge{};
    }
    const Token id = find_mergeable(word.substr(left.begin, left.bytes + right.bytes));
    return id == kNoToken ? Merge{} : Merge{ranks_[static_cast<size_t>(id)], id};
  });
  for (const Symbol& symbol : symbols) {
    const std::string_view text = word.substr(symbol.begin, symbol.bytes);
    const Token id = symbol.id != kNoToken ? symbol.id : find_mergeable(text);
    if (id != kNoToken) {
      out->push_back(id);
      continue;
    }
    for (const char c : text) out->push_back(byte_tokens_[static_cast<uint8_t>(c)]);
  }
}

std::string SentencePiece::text_bytes(Token token) const {
  const std::string_view text = vocab_.text(token);
  if (vocab_.type(token) == TokenType::kByte) {
    // Without sscanf, whose number parsing would add 2 kB of code.
    const auto is_digit = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
    const auto digit = [](char c) { return c <= '9' ? c - '0' : (c & 7) + 9; };
    if (text.size() == 6 && text.substr(0, 3) == "<0x" && is_digit(text[3]) && is_digit(text[4])) {
      return std::string(1, static_cast<char>(16 * digit(text[3]) + digit(text[4])));
    }
  }
  return unmark_spaces(text);
}

}  // namespace

TokenizerResult create_sentencepiece(const gguf::Header& header) {
  auto tokenizer = std::make_unique<SentencePiece>();
  SLUICE_RETURN_IF_ERROR(tokenizer->load(header));
  return TokenizerResult(std::unique_ptr<Tokenizer>(std::move(tokenizer)));
}

}  // namespace sluice::tokenizer

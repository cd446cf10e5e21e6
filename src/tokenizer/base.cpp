// Encoding around special tokens, and the questions about single tokens.
#include "tokenizer/base.h"

#include <algorithm>
#include <cctype>

namespace sluice::tokenizer {

std::string unmark_spaces(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    if (text.substr(pos, kSpaceMark.size()) == kSpaceMark) {
      result += ' ';
      pos += kSpaceMark.size();
    } else {
      result += text[pos++];
    }
  }
  return result;
}

Status BaseTokenizer::read_common(const gguf::Header& header) {
  SLUICE_RETURN_IF_ERROR(vocab_.load(header));
  SLUICE_RETURN_IF_ERROR(specials_.read(header, &vocab_));
  std::string name(header.get_string("general.name").value_or(""));
  std::transform(name.begin(), name.end(), name.begin(), [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  });
  // The files do not say which special tokens swallow the space behind them; Phi-3's do.
  const bool strip_right =
      name.find("phi-3") != std::string::npos || name.find("phi3") != std::string::npos;
  return matcher_.build(vocab_, strip_right);
}

std::vector<Token> BaseTokenizer::encode(std::string_view text,
                                         const EncodeOptions& options) const {
  std::vector<Token> out;
  MergeScratch scratch;
  if (options.add_bos && specials_.add_bos) out.push_back(specials_.bos);
  bool starts = true;
  size_t pos = 0;
  while (pos < text.size()) {
    const auto match = matcher_.next(vocab_, text, pos, options.parse_special);
    if (match.begin > pos) {
      encode_text(text.substr(pos, match.begin - pos), starts, &scratch, &out);
      starts = false;
    }
    if (match.token != kNoToken) {
      out.push_back(match.token);
      starts = true;
    }
    pos = match.resume;
  }
  if (options.add_bos && specials_.add_eos) out.push_back(specials_.eos);
  return out;
}

std::string BaseTokenizer::token_bytes(Token token, bool special) const {
  if (!vocab_.contains(token)) return {};
  const TokenType type = vocab_.type(token);
  if (type == TokenType::kControl || type == TokenType::kUnknown) {
    return special ? std::string(vocab_.text(token)) : std::string();
  }
  return text_bytes(token);
}

bool BaseTokenizer::is_end_of_generation(Token token) const {
  const auto& ends = specials_.end_of_generation;
  return std::binary_search(ends.begin(), ends.end(), token);
}

bool BaseTokenizer::is_control(Token token) const {
  return vocab_.contains(token) && vocab_.type(token) == TokenType::kControl;
}

std::string_view BaseTokenizer::piece(Token token) const {
  return vocab_.contains(token) ? vocab_.text(token) : std::string_view();
}

uint64_t BaseTokenizer::memory_bytes() const {
  return sizeof(*this) + vocab_.memory_bytes() + matcher_.memory_bytes() +
         specials_.end_of_generation.capacity() * sizeof(Token);
}

}  // namespace sluice::tokenizer

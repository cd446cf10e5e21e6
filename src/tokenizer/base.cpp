// Encodes text around special tokens, and answers queries about single tokens.
#include "tokenizer/base.h"

#include <algorithm>
#include <cctype>

#include "tokenizer/literal_spans.h"
#include "tokenizer/nfc.h"
#include "tokenizer/try_reserve.h"
#include "tokenizer/utf8.h"

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

Status BaseTokenizer::read_common(const gguf::Header& header, bool repeats) {
  SLUICE_RETURN_IF_ERROR(vocab_.load(header, repeats));
  SLUICE_RETURN_IF_ERROR(specials_.read(header, &vocab_));
  std::string name(header.get_string("general.name").value_or(""));
  std::transform(name.begin(), name.end(), name.begin(), [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  });
  // The files do not tell which special tokens strip the space after them; those of Phi-3 do.
  const bool strip_right =
      name.find("phi-3") != std::string::npos || name.find("phi3") != std::string::npos;
  const std::string_view normalizer = header.get_string("tokenizer.sluice.normalizer").value_or("");
  if (!normalizer.empty() && normalizer != "NFC") {
    return error(Code::kUnsupportedTokenizer, "the normalizer \"%.64s\" is not supported",
                 std::string(normalizer).c_str());
  }
  nfc_ = !normalizer.empty();
  const std::string_view pair = header.get_string("tokenizer.chat_template.rerank").value_or("");
  if (pair.size() > kMaxPairTemplate) {
    return error(Code::kBadTokenizer, "tokenizer.chat_template.rerank is too long");
  }
  pair_template_ = pair;
  const std::string_view metaspace = header.get_string("tokenizer.sluice.metaspace").value_or("");
  metaspace_ = !metaspace.empty();
  starts_once_ = metaspace == "first";
  SLUICE_RETURN_IF_ERROR(matcher_.read_flags(header, vocab_));
  return matcher_.build(vocab_, specials_, strip_right);
}

Result<std::vector<Token>> BaseTokenizer::try_encode(std::string_view given,
                                                     const EncodeOptions& options) const {
  if (given.size() > kMaxTextBytes) {
    return error(Code::kInvalidArgument, "a text of %zu bytes is too long to encode at once",
                 given.size());
  }
  const auto no_room = [&] {
    return error(Code::kOutOfMemory, "not enough memory to encode a text of %zu bytes",
                 given.size());
  };
  std::vector<Token> out;
  MergeScratch scratch;
  LiteralText marked;
  if (options.literal_spans && !marked.read(given)) return no_room();
  const std::string_view text = options.literal_spans ? marked.text() : given;
  if (!make_room(&out, text.size() / 3 + 16)) return no_room();  // most tokens have more bytes
  if (options.add_special && specials_.add_bos && !options.continuation)
    out.push_back(specials_.bos);
  bool starts = !options.continuation;
  for (size_t pos = 0; pos < text.size();) {
    const auto match = matcher_.next(vocab_, text, pos, options.parse_special, &marked);
    if (match.begin > pos) {
      encode_stretch(text.substr(pos, match.begin - pos), starts, options, &scratch, &out);
      starts = false;
    }
    // One entry more than this token needs, for EOS.
    if (scratch.out_of_memory || !make_room_for(&out, 2)) return no_room();
    if (match.token != kNoToken) {
      out.push_back(match.token);
      starts = !starts_once_;
    }
    pos = match.resume;
  }
  if (options.add_special && specials_.add_eos) out.push_back(specials_.eos);
  return out;
}

// Encodes the text between special tokens that are matched in the raw text.
void BaseTokenizer::encode_stretch(std::string_view text, bool starts, const EncodeOptions& options,
                                   MergeScratch* scratch, std::vector<Token>* out) const {
  std::string valid;
  std::string normalized;
  if (nfc_ && !is_plainly_nfc(text)) {
    scratch->out_of_memory = !make_room(&valid, kReplacement.size() * text.size());
    if (scratch->out_of_memory) return;
    append_valid_utf8(text, Replace::kEachByte, &valid);
    scratch->out_of_memory = !normalize_nfc(valid, &normalized);
    if (scratch->out_of_memory) return;
    text = normalized;
  }
  if (!matcher_.has_normalized()) return encode_text(text, starts, scratch, out);
  LiteralText unmarked;  // no control token is matched here
  for (size_t pos = 0; pos < text.size() && !scratch->out_of_memory;) {
    const auto match = matcher_.next(vocab_, text, pos, options.parse_special, &unmarked, true);
    if (match.begin > pos) {
      encode_text(text.substr(pos, match.begin - pos), starts, scratch, out);
      starts = false;
    }
    if (!make_room_for(out, 2)) scratch->out_of_memory = true;
    if (match.token != kNoToken && !scratch->out_of_memory) {
      out->push_back(match.token);
      starts = !starts_once_;
    }
    pos = match.resume;
  }
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

std::vector<Token> BaseTokenizer::gated_tokens() const {
  std::vector<Token> ids;
  for (Token id = 0; id < vocab_.size(); ++id) {
    if (matcher_.is_gated(vocab_, id)) ids.push_back(id);
  }
  return ids;
}

std::string_view BaseTokenizer::piece(Token token) const {
  return vocab_.contains(token) ? vocab_.text(token) : std::string_view();
}

uint64_t BaseTokenizer::memory_bytes() const {
  return sizeof(*this) + vocab_.memory_bytes() + matcher_.memory_bytes() +
         specials_.end_of_generation.capacity() * sizeof(Token);
}

}  // namespace sluice::tokenizer

// Selects the tokenizer model, estimates its memory before it is built, and detokenizes.
#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <cstdlib>

#include "tokenizer/base.h"
#include "tokenizer/utf8.h"

namespace sluice::tokenizer {

Result<std::unique_ptr<Tokenizer>> Tokenizer::create(const gguf::Header& header) {
  const auto model = header.get_string("tokenizer.ggml.model");
  if (!model) return error(Code::kBadTokenizer, "tokenizer.ggml.model is missing");
  if (*model == "llama" || *model == "gemma4") return create_sentencepiece(header);
  if (*model == "gpt2") return create_byte_bpe(header);
  if (*model == "t5") return create_unigram(header);
  if (*model == "bert") return create_wordpiece(header);
  return error(Code::kUnsupportedTokenizer, "tokenizer model \"%.64s\" is not supported",
               std::string(*model).c_str());
}

uint64_t estimate_memory(const gguf::Header& header) {
  uint64_t bytes = 32 << 10;  // objects, byte tables and the allocator's rounding
  if (const gguf::Value* tokens = header.find("tokenizer.ggml.tokens")) {
    const uint64_t n = tokens->count;
    const uint64_t text = Vocab::text_bytes(*tokens);
    // Text, offsets, types, the table of 1.5 slots per token, and the list of special tokens while
    // it grows.
    bytes += text + n * (4 + 1 + 6) + Vocab::count_special(header) * 12;
    // Ranks of scores, their sorted copy while loading, and the adjacency set. For unigram, the
    // scores and the list of tokens while it grows.
    const bool ranked = header.find("tokenizer.ggml.scores") != nullptr ||
                        header.get_string("tokenizer.ggml.model") == "gemma4";
    if (ranked) bytes += n * 16 + text / 2;
  }
  // WordPiece: the sorted list of tokens while it grows.
  if (header.get_string("tokenizer.ggml.model") == "bert") {
    const gguf::Value* tokens = header.find("tokenizer.ggml.tokens");
    bytes += tokens == nullptr ? 0 : tokens->count * 12;
  }
  bytes += std::min(header.get_string("tokenizer.chat_template.rerank").value_or("").size(),
                    kMaxPairTemplate);
  if (const gguf::Value* rules = header.find("tokenizer.ggml.precompiled_charsmap")) {
    bytes += rules->bytes.size();
  }
  if (const gguf::Value* merges = header.find("tokenizer.ggml.merges")) bytes += merges->count * 16;
  return bytes;
}

std::vector<Token> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  Result<std::vector<Token>> ids = try_encode(text, options);
  if (!ids.ok()) std::abort();
  return std::move(*ids);
}

std::string Tokenizer::decode(std::span<const Token> tokens, bool special) const {
  StreamDecoder decoder(*this, /*at_start=*/true);
  std::string text;
  for (const Token token : tokens) text += decoder.push(token, special);
  text += decoder.finish();
  return text;
}

std::string StreamDecoder::push(Token token, bool special) {
  std::string bytes = tokenizer_->token_bytes(token, special);
  if (at_start_ && !bytes.empty()) {
    if (tokenizer_->strips_leading_space() && bytes[0] == ' ') bytes.erase(0, 1);
    at_start_ = false;
  }
  pending_ += bytes;
  // At most the last three bytes can be an incomplete character.
  size_t whole = pending_.size();
  for (size_t back = 1; back <= 3 && back <= pending_.size(); ++back) {
    const size_t at = pending_.size() - back;
    if (is_unfinished_utf8(std::string_view(pending_).substr(at))) {
      whole = at;
      break;
    }
  }
  std::string text;
  append_valid_utf8(std::string_view(pending_).substr(0, whole), Replace::kEachPart, &text);
  pending_.erase(0, whole);
  return text;
}

std::string StreamDecoder::finish() {
  std::string text;
  append_valid_utf8(pending_, Replace::kEachPart, &text);
  pending_.clear();
  return text;
}

void StreamDecoder::reset() {
  pending_.clear();
  at_start_ = starts_text_;
}

}  // namespace sluice::tokenizer

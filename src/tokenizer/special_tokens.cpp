// Reads special token ids and matches special tokens in text. The length of special tokens is
// capped, so the work per byte of text is bounded.
#include "tokenizer/special_tokens.h"

#include <algorithm>
#include <string>

#include "base/sort.h"
#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

namespace sluice::tokenizer {

namespace {

// Names of tokens that end a turn or a document in common model families.
constexpr std::string_view kEndNames[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<\xEF\xBD\x9C"
    "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
    "[e~[",
};

// Fill-in-the-middle padding, repository and file separators: they end generation.
constexpr std::string_view kFimEndNames[] = {
    "<|fim_pad|>",   "<fim-pad>",  "<fim_pad>", "<PAD>",      "[PAD]",        "<|fim_repo|>",
    "<|repo_name|>", "<fim-repo>", "<REPO>",    "<reponame>", "<|file_sep|>",
};

// Reads the id in a metadata key. If it is missing or -1, *id stays unchanged.
Status read_id(const gguf::Header& header, const char* key, int32_t n_vocab, Token* id) {
  if (*id >= n_vocab) *id = kNoToken;
  const gguf::Value* value = header.find(key);
  if (value == nullptr) return {};
  const auto number = value->as_i64();
  if (!number) return error(Code::kBadTokenizer, "%s is not an integer", key);
  if (*number == -1 || *number == UINT32_MAX) return {};
  if (*number < 0 || *number >= n_vocab) {
    return error(Code::kBadTokenizer, "%s is %lld, outside the vocabulary of %d tokens", key,
                 static_cast<long long>(*number), n_vocab);
  }
  *id = static_cast<Token>(*number);
  return {};
}

Status read_flag(const gguf::Header& header, const char* key, bool* flag) {
  if (header.find(key) == nullptr) return {};
  const auto value = header.get_bool(key);
  if (!value) return error(Code::kBadTokenizer, "%s is not a bool", key);
  *flag = *value;
  return {};
}

// The length of the white space character at `pos`; 0: there is none.
size_t space_at(std::string_view text, size_t pos) {
  if (pos >= text.size()) return 0;
  const Decoded c = decode_utf8(text, pos);
  const bool space = c.cp != kInvalidCodepoint && char_class(c.cp) == CharClass::kSpace;
  return space ? c.bytes : 0;
}

// The start of the run of white space that ends at `pos`.
size_t space_before(std::string_view text, size_t pos) {
  for (size_t back = 1; back <= 3 && back <= pos; ++back) {
    if (space_at(text, pos - back) != back) continue;
    pos -= back;
    back = 0;
  }
  return pos;
}

}  // namespace

Status SpecialTokens::read(const gguf::Header& header, Vocab* vocab) {
  const int32_t n = vocab->size();
  SLUICE_RETURN_IF_ERROR(read_id(header, "tokenizer.ggml.bos_token_id", n, &bos));
  SLUICE_RETURN_IF_ERROR(read_id(header, "tokenizer.ggml.eos_token_id", n, &eos));
  SLUICE_RETURN_IF_ERROR(read_id(header, "tokenizer.ggml.unknown_token_id", n, &unknown));
  SLUICE_RETURN_IF_ERROR(read_id(header, "tokenizer.ggml.seperator_token_id", n, &separator));
  SLUICE_RETURN_IF_ERROR(read_flag(header, "tokenizer.ggml.add_bos_token", &add_bos));
  SLUICE_RETURN_IF_ERROR(read_flag(header, "tokenizer.ggml.add_eos_token", &add_eos));
  SLUICE_RETURN_IF_ERROR(read_flag(header, "tokenizer.ggml.add_sep_token", &add_separator));
  if (add_bos && bos == kNoToken) {
    return error(Code::kBadTokenizer, "tokenizer.ggml.add_bos_token is set but there is no BOS");
  }
  if (add_eos && eos == kNoToken) {
    return error(Code::kBadTokenizer, "tokenizer.ggml.add_eos_token is set but there is no EOS");
  }
  Token eot = kNoToken;
  Token eom = kNoToken;
  SLUICE_RETURN_IF_ERROR(read_id(header, "tokenizer.ggml.eot_token_id", n, &eot));
  SLUICE_RETURN_IF_ERROR(read_id(header, "tokenizer.ggml.eom_token_id", n, &eom));
  for (const Token id : {eos, eot, eom}) {
    if (id != kNoToken) end_of_generation.push_back(id);
  }
  find_end_of_generation(header, vocab);
  if (unknown != kNoToken && vocab->type(unknown) == TokenType::kControl) {
    // Text may become the unknown token, but never a control token. If the unknown token is one
    // (GPT-2's "<|endoftext|>"), there is no token for unknown text.
    const auto& ends = end_of_generation;
    if (unknown == bos || std::binary_search(ends.begin(), ends.end(), unknown)) {
      unknown = kNoToken;
    } else {
      vocab->set_type(unknown, TokenType::kUnknown);
    }
  }
  return {};
}

void SpecialTokens::find_end_of_generation(const gguf::Header& header, Vocab* vocab) {
  auto& ends = end_of_generation;
  const auto add = [&](std::string_view name) {
    const Token id = vocab->find(name);
    if (id == kNoToken) return;
    vocab->set_type(id, TokenType::kControl);
    ends.push_back(id);
  };
  for (const std::string_view name : kEndNames) add(name);
  for (const std::string_view name : kFimEndNames) add(name);
  for (const char* key : {"tokenizer.ggml.fim_pad_token_id", "tokenizer.ggml.fim_rep_token_id",
                          "tokenizer.ggml.fim_sep_token_id"}) {
    const auto id = header.get_u64(key);
    if (id && *id < static_cast<uint64_t>(vocab->size())) ends.push_back(static_cast<Token>(*id));
  }
  // gpt-oss outputs its channel markers as text.
  for (const char* name : {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"}) {
    const Token id = vocab->find(name);
    if (id == kNoToken) continue;
    if (vocab->type(id) == TokenType::kControl) shown.push_back(id);
    vocab->set_type(id, TokenType::kUserDefined);
  }
  const auto drop = [&](std::string_view name, TokenType type) {
    const Token id = vocab->find(name);
    if (id == kNoToken) return;
    ends.erase(std::remove(ends.begin(), ends.end(), id), ends.end());
    if (type == TokenType::kUserDefined) shown.push_back(id);
    vocab->set_type(id, type);
  };
  const auto has = [&](std::string_view name) { return vocab->find(name) != kNoToken; };
  const bool has_call = has("<|call|>") || has("<|calls|>");
  if (has_call && (has("<|return|>") || has("<|flush|>"))) {
    drop("<|end|>", TokenType::kUserDefined);  // ends a channel here, not the response
  }
  if (has("<|tool_response>")) drop("</s>", TokenType::kNormal);
  heap_sort(ends);
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
}

Status SpecialMatcher::build(const Vocab& vocab, const SpecialTokens& specials, bool strip_right) {
  strip_right_ = strip_right;
  shown_ = specials.shown;
  for (Token id = 0; id < vocab.size(); ++id) {
    const TokenType type = vocab.type(id);
    if (type != TokenType::kControl && type != TokenType::kUserDefined &&
        type != TokenType::kUnknown) {
      continue;
    }
    if (vocab.text(id).size() > kMaxSpecialBytes) {
      return error(Code::kBadTokenizer, "special token %d has %zu bytes, more than %llu", id,
                   vocab.text(id).size(), static_cast<unsigned long long>(kMaxSpecialBytes));
    }
    index_.add(id);
  }
  index_.sort(vocab);
  return {};
}

Status SpecialMatcher::read_flags(const gguf::Header& header, const Vocab& vocab) {
  const std::pair<const char*, std::vector<Token>*> kKeys[] = {
      {"tokenizer.sluice.strips_left", &strips_left_},
      {"tokenizer.sluice.strips_right", &strips_right_},
      {"tokenizer.sluice.normalized", &normalized_}};
  for (const auto& [key, ids] : kKeys) {
    const gguf::Value* list = header.find(key);
    if (list == nullptr) continue;
    for (uint64_t i = 0; list->type == gguf::ValueType::kArray && i < list->count; ++i) {
      const double id = list->number_at(i);
      if (!(id >= 0 && id < vocab.size()) || ids->size() >= kMaxVocab) {
        return error(Code::kBadTokenizer, "%s has a token outside of the vocabulary", key);
      }
      ids->push_back(static_cast<Token>(id));
    }
    heap_sort(*ids);
  }
  return {};
}

bool SpecialMatcher::is_gated(const Vocab& vocab, Token id) const {
  const TokenType type = vocab.type(id);
  return type == TokenType::kControl || type == TokenType::kUnknown ||
         std::find(shown_.begin(), shown_.end(), id) != shown_.end();
}

SpecialMatcher::Match SpecialMatcher::next(const Vocab& vocab, std::string_view text, size_t from,
                                           bool parse_special, LiteralText* marked,
                                           bool normalized) const {
  const auto among = [](const std::vector<Token>& ids, Token id) {
    return std::binary_search(ids.begin(), ids.end(), id);
  };
  for (size_t pos = from; pos < text.size(); ++pos) {
    if (!index_.may_start(text[pos])) continue;
    Token longest = kNoToken;
    index_.walk(vocab, text, pos, [&](Token id) {
      if (normalized != (has_normalized() && among(normalized_, id))) return;
      if (!parse_special && vocab.type(id) != TokenType::kUserDefined) return;
      if (is_gated(vocab, id) && marked->is_plain(pos, pos + vocab.text(id).size())) return;
      longest = id;
    });
    if (longest == kNoToken) continue;
    const std::string_view name = vocab.text(longest);
    Match match{pos, pos + name.size(), pos + name.size(), longest};
    if (strip_right_ && name != "<unk>" && name != "<s>" && name != "<|endoftext|>") {
      const auto is_space = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
      while (match.resume < text.size() && is_space(text[match.resume])) ++match.resume;
    }
    if (among(strips_right_, longest)) {
      while (const size_t n = space_at(text, match.resume)) match.resume += n;
    }
    if (among(strips_left_, longest)) {
      match.begin = std::max(from, space_before(text, match.begin));
    }
    return match;
  }
  return {text.size(), text.size(), text.size(), kNoToken};
}

}  // namespace sluice::tokenizer

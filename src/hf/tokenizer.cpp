// Converts the contents of tokenizer.json to a vocabulary, special tokens and the settings of its
// tokenizer model.
#include "hf/tokenizer.h"

#include <charconv>
#include <cstdio>
#include <optional>

#include "gguf/printable.h"
#include "hf/pre_tokenizer.h"
#include "hf/tokenizer_steps.h"

namespace sluice::hf {

namespace {

using gguf::MetadataWriter;
using gguf::printable;

// tokenizer.ggml.token_type
constexpr int32_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6;

bool is_byte_token(std::string_view text) {
  return text.size() == 6 && begins(text, "<0x") && text[5] == '>';
}

std::string with_spaces(std::string_view text) {
  std::string out;
  for (size_t at; (at = text.find(kSpaceMark)) != std::string_view::npos;) {
    out.append(text.substr(0, at)).append(" ");
    text.remove_prefix(at + kSpaceMark.size());
  }
  return out.append(text);
}

// The id of the unknown token, given as text or, by a unigram model, as a number.
int64_t unknown_id(const TokenizerFile& file) {
  if (file.pieces.empty()) return file.find(file.text("model.unk_token"));
  const std::string_view digits = file.text("model.unk_id");
  int64_t id = -1;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), id);
  return read.ec == std::errc() ? id : -1;
}

struct Vocabulary {
  std::vector<std::string> texts;  // by id; empty and kUnused for missing ids
  std::vector<int32_t> types;
};

Status place_tokens(const TokenizerFile& file, int64_t n_vocab, Kind kind, Vocabulary* v) {
  const bool sentencepiece = kind == Kind::kSentencePiece || kind == Kind::kUnigram;
  if (n_vocab < 1 || n_vocab > kMaxVocabulary) {
    return error(Code::kBadTokenizer, "a vocabulary of %lld tokens is impossible",
                 static_cast<long long>(n_vocab));
  }
  v->texts.resize(static_cast<size_t>(n_vocab));
  v->types.assign(static_cast<size_t>(n_vocab), kUnused);
  const auto put = [&](int64_t id, std::string_view text, int32_t type, bool again) {
    if (id < 0 || id >= n_vocab) {
      return error(Code::kBadTokenizer,
                   "tokenizer.json: the token \"%s\" has the id %lld, but the embedding has %lld "
                   "rows",
                   printable(text).c_str(), static_cast<long long>(id),
                   static_cast<long long>(n_vocab));
    }
    const auto i = static_cast<size_t>(id);
    if (v->types[i] != kUnused && !(again && v->texts[i] == text)) {
      return error(Code::kBadTokenizer, "tokenizer.json: two tokens have the id %lld",
                   static_cast<long long>(id));
    }
    v->texts[i] = text;
    v->types[i] = type;
    return Status();
  };
  for (const auto& [text, id] : file.ids) {
    const bool byte = sentencepiece && is_byte_token(text);
    SLUICE_RETURN_IF_ERROR(put(id, text, byte ? kByte : kNormal, false));
  }
  for (size_t i = 0; i < file.pieces.size(); i++) {
    SLUICE_RETURN_IF_ERROR(put(static_cast<int64_t>(i), file.pieces[i], kNormal, false));
  }
  for (const AddedToken& token : file.added) {
    SLUICE_RETURN_IF_ERROR(
        put(token.id, token.content, token.special ? kControl : kUserDefined, true));
    // These are matched in the raw text, so GGUF has plain spaces in them.
    if (sentencepiece && !token.special) {
      v->texts[static_cast<size_t>(token.id)] = with_spaces(token.content);
    }
  }
  const int64_t unknown = unknown_id(file);
  if (kind != Kind::kByteLevel && unknown >= 0 && unknown < n_vocab) {
    v->types[static_cast<size_t>(unknown)] = kUnknown;
  }
  return {};
}

// Converts WordPiece tokens to GGUF's form: a mark before tokens that begin a word, and no prefix
// before those that continue one.
void respell_pieces(Vocabulary* v) {
  for (size_t i = 0; i < v->texts.size(); i++) {
    if (v->types[i] != kNormal) continue;
    std::string& text = v->texts[i];
    text = begins(text, "##") && text.size() > 2 ? text.substr(2) : std::string(kSpaceMark) + text;
  }
}

void write_vocabulary(const Vocabulary& v, MetadataWriter* out) {
  std::string stored;
  for (size_t i = 0; i < v.texts.size(); i++) {
    if (v.types[i] == kUnused) {
      char name[32];
      std::snprintf(name, sizeof name, "[PAD%zu]", i);
      MetadataWriter::append_string(&stored, name);
    } else {
      MetadataWriter::append_string(&stored, v.texts[i]);
    }
  }
  out->strings("tokenizer.ggml.tokens", v.texts.size(), std::move(stored));
  out->integers("tokenizer.ggml.token_type", v.types);
}

// SentencePiece merges by score, BPE by the order of its merges. A token's score is minus the rank
// of the first merge that makes it; tokens that no merge makes come last.
void write_scores(const TokenizerFile& file, const Vocabulary& v, MetadataWriter* out) {
  std::vector<float> scores(v.texts.size(), -1e9f);
  for (size_t i = 0; i < v.texts.size(); i++) {
    if (v.types[i] != kNormal && v.types[i] != kUserDefined) continue;
    if (i < file.ranks.size() && file.ranks[i] >= 0) {
      scores[i] = -static_cast<float>(file.ranks[i]);
    }
  }
  out->floats("tokenizer.ggml.scores", scores);
}

// --- special tokens ------------------------------------------------------------------------------

int64_t find_token(const TokenizerFile& file, std::string_view text) {
  for (const AddedToken& token : file.added) {
    if (token.content == text) return token.id;
  }
  return file.find(text);
}

// The id of a special token such as "bos_token": from its text in tokenizer_config.json, else from
// the number in config.json (the first of a list).
int64_t special_id(const TokenizerFile& file, const Json& settings, const Json& config,
                   const std::string& name) {
  std::optional<std::string_view> text = json_string(settings, name.c_str());
  const Json* object = json_find(settings, name.c_str());
  if (!text && object != nullptr) text = json_string(*object, "content");
  if (text && !text->empty()) return find_token(file, *text);
  const std::string id_key = name + "_id";
  if (const auto id = json_int(config, id_key.c_str())) return *id;
  const Json* list = json_find(config, id_key.c_str());
  if (list != nullptr && list->is_array() && !list->empty() && (*list)[0].is_number_integer()) {
    const int64_t id = (*list)[0].get<int64_t>();
    return id >= 0 && id < kMaxVocabulary ? id : -1;
  }
  return -1;
}

// Whether the template of a single sequence begins, or ends, with a special token.
bool template_adds(const TokenizerFile& file, bool at_end) {
  std::string last;
  std::string first;
  for (const auto& [path, text] : file.facts()) {
    if (!begins(path, "post_processor.")) continue;
    const size_t at = path.find(".single.");
    if (at == std::string::npos || !ends(path, ".id")) continue;
    if (first.empty()) first = path;
    last = path;
  }
  return (at_end ? last : first).find(".SpecialToken.") != std::string::npos;
}

// `unknown` is the unknown token if the tokenizer model names it, else -1.
void write_specials(const TokenizerFile& file, const Json& settings, const Json& config,
                    int64_t n_vocab, int64_t unknown, MetadataWriter* out) {
  const std::pair<const char*, const char*> kNames[] = {
      {"bos_token", "tokenizer.ggml.bos_token_id"},
      {"eos_token", "tokenizer.ggml.eos_token_id"},
      {"unk_token", "tokenizer.ggml.unknown_token_id"},
      {"pad_token", "tokenizer.ggml.padding_token_id"},
      {"sep_token", "tokenizer.ggml.seperator_token_id"},
      {"cls_token", "tokenizer.ggml.cls_token_id"},
  };
  bool has_bos = false;
  bool has_eos = false;
  for (const auto& [name, key] : kNames) {
    const bool known = unknown >= 0 && std::string_view(name) == "unk_token";
    const int64_t id = known ? unknown : special_id(file, settings, config, name);
    if (id < 0 || id >= n_vocab) continue;
    out->number(key, static_cast<uint32_t>(id));
    has_bos = has_bos || std::string_view(name) == "bos_token";
    has_eos = has_eos || std::string_view(name) == "eos_token";
  }
  const bool bos = json_bool(settings, "add_bos_token").value_or(template_adds(file, false));
  const bool eos = json_bool(settings, "add_eos_token").value_or(template_adds(file, true));
  out->boolean("tokenizer.ggml.add_bos_token", bos && has_bos);
  out->boolean("tokenizer.ggml.add_eos_token", eos && has_eos);
}

// A template is a string, or a list of named ones, of which "default" and "tool_use" are used.
void write_chat_template(const Directory& directory, const Json& settings, MetadataWriter* out) {
  std::string_view text = directory.chat_template;
  if (text.empty()) text = json_string(settings, "chat_template").value_or("");
  const Json* list = json_find(settings, "chat_template");
  const bool named = text.empty() && list != nullptr && list->is_array();
  std::string_view for_tools;
  for (size_t i = 0; named && i < list->size(); i++) {
    const std::string_view name = json_string((*list)[i], "name").value_or("");
    const std::string_view source = json_string((*list)[i], "template").value_or("");
    if (name == "default" && text.empty()) text = source;
    if (name == "tool_use" && for_tools.empty()) for_tools = source;
  }
  if (!text.empty()) out->string("tokenizer.chat_template", text);
  if (!for_tools.empty()) out->string("tokenizer.chat_template.tool_use", for_tools);
}

// Whether SentencePiece adds a space before the text, by a normalizer or by Metaspace's scheme.
bool prepends_space(const TokenizerFile& file) {
  for (const auto& [path, text] : file.facts()) {
    if (begins(path, "normalizer.") && ends(path, ".prepend")) return true;
    if (begins(path, "pre_tokenizer.") && ends(path, "prepend_scheme")) return text != "never";
    if (begins(path, "pre_tokenizer.") && ends(path, "add_prefix_space")) return text == "true";
  }
  return false;
}

// --- unigram ------------------------------------------------------------------------------------

// Decodes standard base64 (RFC 4648). False for invalid text.
bool decode_base64(std::string_view text, std::string* out) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  uint32_t bits = 0;
  int have = 0;
  for (const char c : text) {
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) return false;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    have += 6;
    if (have < 8) continue;
    have -= 8;
    out->push_back(static_cast<char>(bits >> have & 0xFF));
  }
  return true;
}

// Writes the scores and the normalizer, as far as GGUF can express it: precompiled rules, and
// whether runs of spaces are collapsed (by a replacement of two or more, or by splitting at white
// space).
Status write_unigram(const TokenizerFile& file, const Vocabulary& v, MetadataWriter* out) {
  if (file.text("model.byte_fallback") == "true") {
    return error(Code::kUnsupportedTokenizer,
                 "tokenizer.json: a unigram model with byte fallback is not supported");
  }
  std::vector<float> scores = file.scores;
  scores.resize(v.texts.size(), 0.0f);
  out->floats("tokenizer.ggml.scores", scores);
  out->boolean("tokenizer.ggml.add_space_prefix", prepends_space(file));
  bool one_space = false;
  for (const auto& [path, text] : file.facts()) {
    const bool cut = begins(path, "pre_tokenizer.") && text == "WhitespaceSplit";
    one_space = one_space || cut || (begins(path, "normalizer.") && text == " {2,}");
    if (!begins(path, "normalizer.") || !ends(path, "precompiled_charsmap")) continue;
    std::string rules;
    if (!decode_base64(text, &rules)) {
      return error(Code::kBadTokenizer, "tokenizer.json: precompiled_charsmap is not base64");
    }
    out->bytes("tokenizer.ggml.precompiled_charsmap", rules);
  }
  out->boolean("tokenizer.ggml.remove_extra_whitespaces", one_space);
  return {};
}

// Writes the maximum length of a word.
void write_wordpiece(const TokenizerFile& file, MetadataWriter* out) {
  const std::string_view digits = file.text("model.max_input_chars_per_word");
  uint32_t longest = 100;
  std::from_chars(digits.data(), digits.data() + digits.size(), longest);
  out->number("tokenizer.sluice.longest_word", longest);
}

bool is_byte_level(const TokenizerFile& file) {
  for (const auto& [path, text] : file.facts()) {
    if (begins(path, "pre_tokenizer.") && ends(path, "type") && text == "ByteLevel") return true;
  }
  return false;
}

}  // namespace

Status describe_tokenizer(const Directory& directory, const Json& config, int64_t n_vocab,
                          MetadataWriter* out) {
  TokenizerFile file;
  const Result<bool> walked = walk_json(directory.tokenizer, "tokenizer.json", &file);
  if (!walked.ok()) return walked.status();
  if (!*walked) return error(Code::kBadTokenizer, "tokenizer.json: %s", file.problem.c_str());
  Json settings = Json::object();
  if (!directory.tokenizer_config.empty()) {
    Result<Json> parsed = parse_json(directory.tokenizer_config, "tokenizer_config.json");
    if (!parsed.ok()) return parsed.status();
    settings = std::move(*parsed);
  }
  const std::string_view type = file.text("model.type");
  const bool bpe = type == "BPE" || (type.empty() && file.n_merges > 0);  // older files omit it
  const bool byte_level = is_byte_level(file);
  const bool sentencepiece = !byte_level && file.text("model.byte_fallback") == "true";
  const bool unigram = type == "Unigram" && !file.scores.empty();
  const bool wordpiece = type == "WordPiece";
  if (!unigram && !wordpiece && (!bpe || (!byte_level && !sentencepiece))) {
    return error(Code::kUnsupportedTokenizer,
                 "tokenizer.json: a tokenizer of type \"%s\"%s is not "
                 "supported",
                 printable(type).c_str(), bpe ? " without byte fallback" : "");
  }
  const Kind kind = unigram         ? Kind::kUnigram
                    : wordpiece     ? Kind::kWordPiece
                    : sentencepiece ? Kind::kSentencePiece
                                    : Kind::kByteLevel;
  SLUICE_RETURN_IF_ERROR(check_steps(file, kind, out));
  const bool normalizes = byte_level && !file.text("normalizer.type").empty();
  SLUICE_RETURN_IF_ERROR(write_added_flags(file, normalizes, out));
  for (const AddedToken& token : file.added) {
    if (!wordpiece || !token.normalized.value_or(!token.special)) continue;
    return error(Code::kUnsupportedTokenizer,
                 "tokenizer.json: the normalized of \"added token %s\" is not supported",
                 printable(token.content).c_str());
  }
  Vocabulary vocabulary;
  SLUICE_RETURN_IF_ERROR(place_tokens(file, n_vocab, kind, &vocabulary));
  if (wordpiece) respell_pieces(&vocabulary);
  constexpr const char* kModels[] = {"gpt2", "llama", "t5", "bert"};
  out->string("tokenizer.ggml.model", kModels[static_cast<size_t>(kind)]);
  write_vocabulary(vocabulary, out);
  if (wordpiece) {
    out->string("tokenizer.ggml.pre", "default");
    write_wordpiece(file, out);
  } else if (unigram) {
    out->string("tokenizer.ggml.pre", "default");
    SLUICE_RETURN_IF_ERROR(write_unigram(file, vocabulary, out));
  } else if (sentencepiece) {
    out->string("tokenizer.ggml.pre", "default");
    write_scores(file, vocabulary, out);
    out->boolean("tokenizer.ggml.add_space_prefix", prepends_space(file));
  } else {
    const bool whole_words = file.text("model.ignore_merges") == "true";
    const auto pre = recognize_pre_tokenizer(pre_tokenizer_steps(file), whole_words);
    if (!pre.ok()) return pre.status();
    out->string("tokenizer.ggml.pre", *pre);
    out->strings("tokenizer.ggml.merges", file.n_merges, std::move(file.merges));
  }
  const bool named = unigram || wordpiece;
  write_specials(file, settings, config, n_vocab, named ? unknown_id(file) : -1, out);
  write_chat_template(directory, settings, out);
  return {};
}

}  // namespace sluice::hf

// tokenizer.json, streamed: the vocabulary and the merges go straight into stored form, all other
// scalars into a short list of facts with their paths.
#include "gguf/hf_tokenizer.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>
#include <unordered_map>

#include "gguf/hf_pre_tokenizer.h"
#include "gguf/printable.h"

namespace sluice::gguf {

namespace {

constexpr size_t kMaxFactBytes = 4u << 20;  // of paths and texts outside vocabulary and merges
constexpr size_t kMaxTokenBytes = 4u << 10;

// tokenizer.ggml.token_type
constexpr int32_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6;

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, SentencePiece's space

struct AddedToken {
  int64_t id = -1;
  std::string content;
  bool special = false;
  bool single_word = false;
  bool lstrip = false;
  bool rstrip = false;
  std::optional<bool> normalized;  // not said: where it is not special
};

// What tokenizer.json says.
class TokenizerFile final : public JsonVisitor {
 public:
  bool scalar(const JsonPath& path, const JsonScalar& value) override {
    if (path.size() >= 2 && path[0] == "model") {
      if (path[1] == "vocab") return vocabulary(path, value);
      if (path[1] == "merges") return merge(path, value);
    }
    if (path.size() == 3 && path[0] == "added_tokens") return added_token(path, value);
    return fact(path, value);
  }

  bool end(const JsonPath& path) override {
    if (path.size() != 3 || path[1] != "merges" || path[0] != "model") return true;
    return pair_.size() == 2 ? add_merge(pair_[0], pair_[1]) : fail("a merge is not a pair");
  }

  // The text of a scalar, "true" or "false" for booleans; empty when there is none.
  [[nodiscard]] std::string_view text(std::string_view path) const {
    for (const auto& [key, value] : facts_) {
      if (key == path) return value;
    }
    return {};
  }
  [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& facts() const {
    return facts_;
  }
  [[nodiscard]] int64_t find(std::string_view token) const {
    const auto it = ids.find(std::string(token));
    return it == ids.end() ? -1 : it->second;
  }

  std::string problem;
  std::unordered_map<std::string, int32_t> ids;
  std::vector<AddedToken> added;
  std::vector<std::string> pieces;  // by id, with a score each: unigram
  std::vector<float> scores;
  std::string merges;  // stored form
  uint64_t n_merges = 0;
  std::vector<int32_t> ranks;  // by token id: the first merge that makes it, -1 for none

 private:
  bool fail(const char* what) {
    problem = what;
    return false;
  }

  bool vocabulary(const JsonPath& path, const JsonScalar& value) {
    if (path.size() == 4) return piece(path, value);
    if (value.kind != JsonScalar::Kind::kInteger || path.size() != 3) {
      return fail("the vocabulary is neither tokens with ids nor pieces with scores");
    }
    if (value.integer < 0 || value.integer >= kMaxHfVocabulary || path[2].size() > kMaxTokenBytes) {
      return fail("a token's id or length is impossible");
    }
    if (!ids.emplace(path[2], static_cast<int32_t>(value.integer)).second) {
      return fail("a token occurs twice");
    }
    return true;
  }

  // ["piece", score], whose place is its id: the vocabulary of a unigram model.
  bool piece(const JsonPath& path, const JsonScalar& value) {
    const bool is_text = value.kind == JsonScalar::Kind::kString;
    if (path[3] == "0" && is_text && value.text.size() <= kMaxTokenBytes &&
        scores.size() == pieces.size() && pieces.size() < static_cast<size_t>(kMaxHfVocabulary)) {
      pieces.emplace_back(value.text);
      return true;
    }
    const bool is_number =
        value.kind == JsonScalar::Kind::kInteger || value.kind == JsonScalar::Kind::kFloat;
    if (path[3] != "1" || !is_number || scores.size() + 1 != pieces.size()) {
      return fail("a piece of the vocabulary is not a text with a score");
    }
    scores.push_back(static_cast<float>(value.number));
    return true;
  }

  bool merge(const JsonPath& path, const JsonScalar& value) {
    if (value.kind != JsonScalar::Kind::kString) return fail("a merge is not text");
    if (path.size() == 4) {  // ["a", "b"]
      if (path[3] == "0") pair_.clear();
      if (pair_.size() >= 2) return fail("a merge is not a pair");
      pair_.emplace_back(value.text);
      return true;
    }
    const size_t space = value.text.find(' ', 1);
    if (path.size() != 3 || space == std::string_view::npos) return fail("a merge is not a pair");
    return add_merge(value.text.substr(0, space), value.text.substr(space + 1));
  }

  bool add_merge(std::string_view left, std::string_view right) {
    if (left.empty() || right.empty() || left.size() + right.size() > kMaxTokenBytes) {
      return fail("a merge has an impossible length");
    }
    if (n_merges >= kMaxHfMerges) return fail("there are too many merges");
    const std::string text = std::string(left).append(right);
    const auto token = ids.find(text);
    if (token == ids.end()) {  // the vocabulary stands before the merges in every writer's order
      problem = "the merge of \"" + printable(left) + "\" and \"" + printable(right) +
                "\" makes no token";
      return false;
    }
    const auto id = static_cast<size_t>(token->second);
    if (ranks.size() <= id) ranks.resize(id + 1, -1);
    if (ranks[id] < 0) ranks[id] = static_cast<int32_t>(n_merges);
    MetadataWriter::append_string(&merges, std::string(left).append(" ").append(right));
    n_merges++;
    return true;
  }

  bool added_token(const JsonPath& path, const JsonScalar& value) {
    if (added.empty() || path[1] != added_index_) added.emplace_back();
    added_index_ = path[1];
    if (added.size() > static_cast<size_t>(kMaxHfVocabulary)) return fail("too many added tokens");
    AddedToken& token = added.back();
    if (path[2] == "id") token.id = value.kind == JsonScalar::Kind::kInteger ? value.integer : -1;
    if (path[2] == "content") token.content = value.text.substr(0, kMaxTokenBytes);
    if (path[2] == "special") token.special = value.boolean;
    if (path[2] == "single_word") token.single_word = value.boolean;
    if (path[2] == "lstrip") token.lstrip = value.boolean;
    if (path[2] == "rstrip") token.rstrip = value.boolean;
    if (path[2] == "normalized") token.normalized = value.boolean;
    return true;
  }

  bool fact(const JsonPath& path, const JsonScalar& value) {
    std::string key;
    for (const std::string& part : path) {
      if (!key.empty()) key += '.';
      key += part;
    }
    std::string text(value.text);
    if (value.kind == JsonScalar::Kind::kBool) text = value.boolean ? "true" : "false";
    if (value.kind == JsonScalar::Kind::kInteger) text = std::to_string(value.integer);
    if (value.kind == JsonScalar::Kind::kNull) return true;
    fact_bytes_ += key.size() + text.size() + 64;
    if (fact_bytes_ > kMaxFactBytes) return fail("it describes too much");
    facts_.emplace_back(std::move(key), std::move(text));
    return true;
  }

  std::vector<std::pair<std::string, std::string>> facts_;
  size_t fact_bytes_ = 0;
  std::vector<std::string> pair_;
  std::string added_index_;
};

bool begins(std::string_view text, std::string_view with) {
  return text.substr(0, with.size()) == with;
}
bool ends(std::string_view text, std::string_view with) {
  return text.size() >= with.size() && text.substr(text.size() - with.size()) == with;
}

Status unsupported(const char* what, std::string_view name) {
  return error(Code::kUnsupportedTokenizer, "tokenizer.json: the %s \"%s\" is not supported", what,
               printable(name).c_str());
}

// --- normalizers and other steps -----------------------------------------------------------------

// The paths of the steps of a component that may be a sequence: "normalizer." or
// "normalizer.normalizers.0." and so on; in a sequence within a sequence too.
void find_steps(const TokenizerFile& file, const std::string& at, const char* list, int depth,
                std::vector<std::string>* steps) {
  const std::string_view type = file.text(at + "type");
  if (type != "Sequence" || depth > 4) {
    if (!type.empty()) steps->push_back(at);
    return;
  }
  for (int i = 0; i < 64; i++) {
    const std::string step = at + list + "." + std::to_string(i) + ".";
    if (file.text(step + "type").empty()) break;
    find_steps(file, step, list, depth + 1, steps);
  }
}

bool replaces(const TokenizerFile& file, const std::string& at, const char* kind,
              std::string_view pattern, std::string_view content) {
  return file.text(at + "type") == "Replace" && file.text(at + "pattern." + kind) == pattern &&
         file.text(at + "content") == content;
}

enum class Kind { kByteLevel, kSentencePiece, kUnigram };

// What the tokenizer does of its own accord, or can be told to; all else is refused by name.
Status check_normalizer(const TokenizerFile& file, Kind kind, MetadataWriter* out) {
  std::vector<std::string> steps;
  find_steps(file, "normalizer.", "normalizers", 0, &steps);
  for (const std::string& at : steps) {
    const std::string_view type = file.text(at + "type");
    bool known = false;
    if (kind == Kind::kByteLevel) known = type == "NFC";
    if (kind == Kind::kSentencePiece) {
      known = (type == "Prepend" && file.text(at + "prepend") == kSpaceMark) ||
              replaces(file, at, "String", " ", kSpaceMark);
    }
    if (kind == Kind::kUnigram) {
      known = type == "Precompiled" || replaces(file, at, "Regex", " {2,}", " ") ||
              replaces(file, at, "Regex", " {2,}", kSpaceMark);
    }
    if (!known) return unsupported("normalizer", type);
  }
  if (kind == Kind::kByteLevel && !steps.empty()) out->string("tokenizer.sluice.normalizer", "NFC");
  return {};
}

// Of byte-level BPE hf_pre_tokenizer.h knows them.
Status check_pre_tokenizer(const TokenizerFile& file, Kind kind) {
  std::vector<std::string> steps;
  find_steps(file, "pre_tokenizer.", "pretokenizers", 0, &steps);
  for (const std::string& at : steps) {
    const std::string_view type = file.text(at + "type");
    if (type == "ByteLevel" && file.text(at + "add_prefix_space") == "true") {
      return unsupported("pre-tokenizer", "ByteLevel with add_prefix_space");
    }
    if (kind == Kind::kByteLevel) continue;
    const bool metaspace = type == "Metaspace" && file.text(at + "replacement") == kSpaceMark;
    const bool spaces = kind == Kind::kUnigram
                            ? type == "WhitespaceSplit"
                            : type == "Split" && file.text(at + "pattern.String") == " ";
    if (!metaspace && !spaces) return unsupported("pre-tokenizer", type);
  }
  return {};
}

Status check_model(const TokenizerFile& file) {
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!file.text(std::string("model.") + name).empty()) return unsupported("model with", name);
  }
  std::vector<std::string> steps;
  find_steps(file, "post_processor.", "processors", 0, &steps);
  for (const std::string& at : steps) {
    const std::string_view type = file.text(at + "type");
    if (type != "ByteLevel" && type != "TemplateProcessing") {
      return unsupported("post-processor", type);
    }
  }
  return {};
}

// The flags of added tokens: what surrounds them, and where they are looked for.
Status write_added_flags(const TokenizerFile& file, bool normalizes, MetadataWriter* out) {
  std::vector<int32_t> left, right, normalized;
  for (const AddedToken& token : file.added) {
    const std::string name = "added token " + token.content;
    if (token.single_word) return unsupported("single_word of", name);
    if (token.lstrip) left.push_back(static_cast<int32_t>(token.id));
    if (token.rstrip) right.push_back(static_cast<int32_t>(token.id));
    if (!normalizes || !token.normalized.value_or(!token.special)) continue;
    // A control token may be a stretch of text that normalization moves: refused, as one that
    // normalization changes is.
    const bool plain = std::all_of(token.content.begin(), token.content.end(),
                                   [](char c) { return static_cast<uint8_t>(c) < 0x80; });
    if (token.special || !plain) return unsupported("normalized of", name);
    normalized.push_back(static_cast<int32_t>(token.id));
  }
  if (!left.empty()) out->integers("tokenizer.sluice.strips_left", left);
  if (!right.empty()) out->integers("tokenizer.sluice.strips_right", right);
  if (!normalized.empty()) out->integers("tokenizer.sluice.normalized", normalized);
  return {};
}

// --- pre-tokenizers of byte-level BPE ------------------------------------------------------------

// The steps of tokenizer.json's pre_tokenizer, as hf_pre_tokenizer.h wants them.
std::vector<std::string> pre_tokenizer_steps(const TokenizerFile& file) {
  std::vector<std::string> steps;
  const std::string_view type = file.text("pre_tokenizer.type");
  const auto step = [&](const std::string& at) {
    const std::string name(file.text(at + "type"));
    if (name == "Split") {
      std::string_view regex = file.text(at + "pattern.Regex");
      if (regex.empty()) regex = file.text(at + "pattern.String");
      const std::string_view behavior = file.text(at + "behavior");
      const bool invert = file.text(at + "invert") == "true";
      // The expressions match everything, so what lies between matches can be removed.
      const bool plain = invert ? behavior == "Removed" : behavior == "Isolated";
      return std::string(plain ? "Split:" : "Split in another way:").append(regex);
    }
    if (name == "Digits") {
      return std::string(file.text(at + "individual_digits") == "true" ? "Digits:1" : "Digits:n");
    }
    if (name == "ByteLevel") {
      return std::string(file.text(at + "use_regex") == "false" ? "ByteLevel" : "ByteLevel:regex");
    }
    if (name == "Punctuation") return name + ":" + std::string(file.text(at + "behavior"));
    return name;
  };
  if (type != "Sequence") {
    if (!type.empty()) steps.push_back(step("pre_tokenizer."));
    return steps;
  }
  for (int i = 0; i < 16; i++) {
    const std::string at = "pre_tokenizer.pretokenizers." + std::to_string(i) + ".";
    if (file.text(at + "type").empty()) break;
    steps.push_back(step(at));
  }
  return steps;
}

// --- the vocabulary ------------------------------------------------------------------------------

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

// The token that stands for what the vocabulary lacks: named, or a unigram model's number.
int64_t unknown_id(const TokenizerFile& file) {
  if (file.pieces.empty()) return file.find(file.text("model.unk_token"));
  const std::string_view digits = file.text("model.unk_id");
  int64_t id = -1;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), id);
  return read.ec == std::errc() ? id : -1;
}

struct Vocabulary {
  std::vector<std::string> texts;  // by id; empty and kUnused where there is none
  std::vector<int32_t> types;
};

Status place_tokens(const TokenizerFile& file, int64_t n_vocab, bool sentencepiece, Vocabulary* v) {
  if (n_vocab < 1 || n_vocab > kMaxHfVocabulary) {
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
    // These are found in the text as it was typed, so GGUF spells their spaces as spaces.
    if (sentencepiece && !token.special) {
      v->texts[static_cast<size_t>(token.id)] = with_spaces(token.content);
    }
  }
  const int64_t unknown = unknown_id(file);
  if (sentencepiece && unknown >= 0 && unknown < n_vocab) {
    v->types[static_cast<size_t>(unknown)] = kUnknown;
  }
  return {};
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

// SentencePiece merges by score, BPE by the order of its merges: a token's score is minus the rank
// of the first merge that makes it, and what no merge makes comes last.
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

// The id of "bos_token" and the like: by its text in tokenizer_config.json, else by the number in
// config.json (the first of a list).
int64_t special_id(const TokenizerFile& file, const Json& settings, const Json& config,
                   const std::string& name) {
  std::optional<std::string_view> text = json_string(settings, name.c_str());
  const Json* object = json_find(settings, name.c_str());
  if (!text && object != nullptr) text = json_string(*object, "content");
  if (text && !text->empty()) return find_token(file, *text);
  const std::string id_key = name + "_id";
  if (const auto id = json_int(config, id_key.c_str())) return *id;
  const Json* list = json_find(config, id_key.c_str());
  if (list != nullptr && list->is_array() && !list->empty() && (*list)[0].is_number_unsigned()) {
    const uint64_t id = (*list)[0].get<uint64_t>();
    return id < static_cast<uint64_t>(kMaxHfVocabulary) ? static_cast<int64_t>(id) : -1;
  }
  return -1;
}

// Whether the template of a single sequence begins (or ends) with a special token.
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

void write_specials(const TokenizerFile& file, const Json& settings, const Json& config,
                    int64_t n_vocab, MetadataWriter* out) {
  const std::pair<const char*, const char*> kNames[] = {
      {"bos_token", "tokenizer.ggml.bos_token_id"},
      {"eos_token", "tokenizer.ggml.eos_token_id"},
      {"unk_token", "tokenizer.ggml.unknown_token_id"},
      {"pad_token", "tokenizer.ggml.padding_token_id"},
  };
  bool has_bos = false;
  bool has_eos = false;
  for (const auto& [name, key] : kNames) {
    const int64_t id = special_id(file, settings, config, name);
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

// A template is text, or a list of named ones of which "default" counts.
void write_chat_template(const HfDirectory& directory, const Json& settings, MetadataWriter* out) {
  std::string_view text = directory.chat_template;
  if (text.empty()) text = json_string(settings, "chat_template").value_or("");
  const Json* list = json_find(settings, "chat_template");
  for (size_t i = 0; text.empty() && list != nullptr && list->is_array() && i < list->size(); i++) {
    if (json_string((*list)[i], "name") == "default") {
      text = json_string((*list)[i], "template").value_or("");
    }
  }
  if (!text.empty()) out->string("tokenizer.chat_template", text);
}

// Does SentencePiece put a space before the text? As a normalizer or as Metaspace's scheme.
bool prepends_space(const TokenizerFile& file) {
  for (const auto& [path, text] : file.facts()) {
    if (begins(path, "normalizer.") && ends(path, ".prepend")) return true;
    if (begins(path, "pre_tokenizer.") && ends(path, "prepend_scheme")) return text != "never";
    if (begins(path, "pre_tokenizer.") && ends(path, "add_prefix_space")) return text == "true";
  }
  return false;
}

// --- unigram ------------------------------------------------------------------------------------

// The characters' values of standard base64 (RFC 4648) without padding; false for other text.
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

// Scores, and the normalizer as far as GGUF can say it: precompiled rules, and whether runs of
// spaces become one (as a replacement of two and more, or because words are cut at white space).
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
  if (const int64_t unknown = unknown_id(file); unknown >= 0) {
    out->number("tokenizer.ggml.unknown_token_id", static_cast<uint32_t>(unknown));
  }
  return {};
}

bool is_byte_level(const TokenizerFile& file) {
  for (const auto& [path, text] : file.facts()) {
    if (begins(path, "pre_tokenizer.") && ends(path, "type") && text == "ByteLevel") return true;
  }
  return false;
}

}  // namespace

Status describe_hf_tokenizer(const HfDirectory& directory, const Json& config, int64_t n_vocab,
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
  if (!unigram && (!bpe || (!byte_level && !sentencepiece))) {
    return error(Code::kUnsupportedTokenizer,
                 "tokenizer.json: a tokenizer of type \"%s\"%s is not "
                 "supported",
                 printable(type).c_str(), bpe ? " without byte fallback" : "");
  }
  const Kind kind = unigram         ? Kind::kUnigram
                    : sentencepiece ? Kind::kSentencePiece
                                    : Kind::kByteLevel;
  SLUICE_RETURN_IF_ERROR(check_normalizer(file, kind, out));
  SLUICE_RETURN_IF_ERROR(check_pre_tokenizer(file, kind));
  SLUICE_RETURN_IF_ERROR(check_model(file));
  const bool normalizes = byte_level && !file.text("normalizer.type").empty();
  SLUICE_RETURN_IF_ERROR(write_added_flags(file, normalizes, out));
  Vocabulary vocabulary;
  SLUICE_RETURN_IF_ERROR(place_tokens(file, n_vocab, sentencepiece || unigram, &vocabulary));
  out->string("tokenizer.ggml.model", unigram ? "t5" : sentencepiece ? "llama" : "gpt2");
  write_vocabulary(vocabulary, out);
  if (unigram) {
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
  write_specials(file, settings, config, n_vocab, out);
  write_chat_template(directory, settings, out);
  return {};
}

}  // namespace sluice::gguf

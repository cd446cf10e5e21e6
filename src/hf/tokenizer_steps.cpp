// Checks the steps of a tokenizer.json, component by component.
#include "hf/tokenizer_steps.h"

#include <algorithm>

#include "gguf/printable.h"

namespace sluice::hf {

namespace {

using gguf::MetadataWriter;
using gguf::printable;

Status unsupported(const char* what, std::string_view name) {
  return error(Code::kUnsupportedTokenizer, "tokenizer.json: the %s \"%s\" is not supported", what,
               printable(name).c_str());
}

// Collects the paths of a component's steps. The component may be a sequence, also a nested one:
// "normalizer." or "normalizer.normalizers.0." and so on.
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

// BERT's normalizer: cleans white space, separates Chinese characters, strips accents (by default
// when lowercasing) and converts to lower case.
Status write_bert_normalizer(const TokenizerFile& file, const std::string& at,
                             MetadataWriter* out) {
  const std::string_view type = file.text(at + "type");
  if (type != "BertNormalizer") return unsupported("normalizer", type);
  if (file.text(at + "clean_text") == "false") {
    return unsupported("normalizer", "BertNormalizer without clean_text");
  }
  const bool lower = file.text(at + "lowercase") != "false";
  const std::string_view strip = file.text(at + "strip_accents");
  out->boolean("tokenizer.sluice.lowercase", lower);
  out->boolean("tokenizer.sluice.strip_accents", strip.empty() ? lower : strip == "true");
  out->boolean("tokenizer.sluice.chinese_words", file.text(at + "handle_chinese_chars") != "false");
  return {};
}

// Accepts steps that the tokenizer always does, or can be configured to do. Any other step is an
// error that names it.
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
    if (kind == Kind::kWordPiece) {
      SLUICE_RETURN_IF_ERROR(write_bert_normalizer(file, at, out));
      known = true;
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

// Where Metaspace adds a space: before every section of the text, only before the first, or never.
void write_metaspace(const TokenizerFile& file, const std::string& at, MetadataWriter* out) {
  const std::string_view scheme = file.text(at + "prepend_scheme");
  if (scheme == "never") return;
  out->string("tokenizer.sluice.metaspace", scheme == "first" ? "first" : "always");
}

// For byte-level BPE, pre_tokenizer.h checks these steps.
Status check_pre_tokenizer(const TokenizerFile& file, Kind kind, MetadataWriter* out) {
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
    const bool bert = kind == Kind::kWordPiece && type == "BertPreTokenizer";
    if (kind == Kind::kWordPiece ? !bert : !metaspace && !spaces) {
      return unsupported("pre-tokenizer", type);
    }
    if (metaspace) write_metaspace(file, at, out);
  }
  return {};
}

Status check_model(const TokenizerFile& file, Kind kind) {
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const std::string_view text = file.text(std::string("model.") + name);
    const bool own = kind == Kind::kWordPiece && text == "##";
    if (!text.empty() && !own) return unsupported("model with", name);
  }
  std::vector<std::string> steps;
  find_steps(file, "post_processor.", "processors", 0, &steps);
  for (const std::string& at : steps) {
    const std::string_view type = file.text(at + "type");
    const bool bert = kind == Kind::kWordPiece && type == "BertProcessing";
    if (type != "ByteLevel" && type != "TemplateProcessing" && !bert) {
      return unsupported("post-processor", type);
    }
  }
  return {};
}

}  // namespace

Status check_steps(const TokenizerFile& file, Kind kind, MetadataWriter* out) {
  SLUICE_RETURN_IF_ERROR(check_normalizer(file, kind, out));
  SLUICE_RETURN_IF_ERROR(check_pre_tokenizer(file, kind, out));
  return check_model(file, kind);
}

Status write_added_flags(const TokenizerFile& file, bool normalizes, MetadataWriter* out) {
  std::vector<int32_t> left, right, normalized;
  for (const AddedToken& token : file.added) {
    const std::string name = "added token " + token.content;
    if (token.single_word) return unsupported("single_word of", name);
    if (token.lstrip) left.push_back(static_cast<int32_t>(token.id));
    if (token.rstrip) right.push_back(static_cast<int32_t>(token.id));
    if (!normalizes || !token.normalized.value_or(!token.special)) continue;
    // Normalization could change or move the text of such a token, so control tokens and tokens
    // with non-ASCII characters are errors here.
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
      // The expressions match everything, so text between matches can be removed.
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

}  // namespace sluice::hf

// Collects the scalars of a tokenizer.json.
#include "hf/tokenizer_file.h"

#include "gguf/printable.h"
#include "hf/tokenizer.h"

namespace sluice::hf {

namespace {

using gguf::MetadataWriter;
using gguf::printable;

constexpr size_t kMaxFactBytes = 4u << 20;  // of paths and strings outside vocabulary and merges
constexpr size_t kMaxTokenBytes = 4u << 10;

}  // namespace

bool TokenizerFile::fail(const char* what) {
  problem = what;
  return false;
}

bool TokenizerFile::vocabulary(const JsonPath& path, const JsonScalar& value) {
  if (path.size() == 4) return piece(path, value);
  if (value.kind != JsonScalar::Kind::kInteger || path.size() != 3) {
    return fail("the vocabulary is neither tokens with ids nor pieces with scores");
  }
  if (value.integer < 0 || value.integer >= kMaxVocabulary || path[2].size() > kMaxTokenBytes) {
    return fail("a token's id or length is impossible");
  }
  if (!ids.emplace(path[2], static_cast<int32_t>(value.integer)).second) {
    return fail("a token occurs twice");
  }
  return true;
}

// ["piece", score], an entry of a unigram model's vocabulary; its index is its id.
bool TokenizerFile::piece(const JsonPath& path, const JsonScalar& value) {
  const bool is_text = value.kind == JsonScalar::Kind::kString;
  if (path[3] == "0" && is_text && value.text.size() <= kMaxTokenBytes &&
      scores.size() == pieces.size() && pieces.size() < static_cast<size_t>(kMaxVocabulary)) {
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

bool TokenizerFile::merge(const JsonPath& path, const JsonScalar& value) {
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

bool TokenizerFile::add_merge(std::string_view left, std::string_view right) {
  if (left.empty() || right.empty() || left.size() + right.size() > kMaxTokenBytes) {
    return fail("a merge has an impossible length");
  }
  if (n_merges >= kMaxMerges) return fail("there are too many merges");
  const std::string text = std::string(left).append(right);
  const auto token = ids.find(text);
  if (token == ids.end()) {  // all writers put the vocabulary before the merges
    problem =
        "the merge of \"" + printable(left) + "\" and \"" + printable(right) + "\" makes no token";
    return false;
  }
  const auto id = static_cast<size_t>(token->second);
  if (ranks.size() <= id) ranks.resize(id + 1, -1);
  if (ranks[id] < 0) ranks[id] = static_cast<int32_t>(n_merges);
  MetadataWriter::append_string(&merges, std::string(left).append(" ").append(right));
  n_merges++;
  return true;
}

bool TokenizerFile::added_token(const JsonPath& path, const JsonScalar& value) {
  if (added.empty() || path[1] != added_index_) added.emplace_back();
  added_index_ = path[1];
  if (added.size() > static_cast<size_t>(kMaxVocabulary)) return fail("too many added tokens");
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

bool TokenizerFile::fact(const JsonPath& path, const JsonScalar& value) {
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
  if (fact_bytes_ > kMaxFactBytes) return fail("its other values take too many bytes");
  facts_.emplace_back(std::move(key), std::move(text));
  return true;
}

bool begins(std::string_view text, std::string_view with) {
  return text.substr(0, with.size()) == with;
}
bool ends(std::string_view text, std::string_view with) {
  return text.size() >= with.size() && text.substr(text.size() - with.size()) == with;
}

}  // namespace sluice::hf

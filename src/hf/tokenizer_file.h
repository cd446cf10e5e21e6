// Reads a tokenizer.json as a stream. Vocabulary and merges go directly into their stored form; all
// other scalars go into a short list of facts with their paths.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gguf/metadata_writer.h"
#include "hf/json.h"

namespace sluice::hf {

struct AddedToken {
  int64_t id = -1;
  std::string content;
  bool special = false;
  bool single_word = false;
  bool lstrip = false;
  bool rstrip = false;
  std::optional<bool> normalized;  // by default, if it is not special
};

// The contents of a tokenizer.json.
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
  std::vector<std::string> pieces;  // by id, each with a score: unigram
  std::vector<float> scores;
  std::string merges;  // stored form
  uint64_t n_merges = 0;
  std::vector<int32_t> ranks;  // by token id: the first merge that makes it, -1 for none

 private:
  bool fail(const char* what);
  bool vocabulary(const JsonPath& path, const JsonScalar& value);
  bool piece(const JsonPath& path, const JsonScalar& value);
  bool merge(const JsonPath& path, const JsonScalar& value);
  bool add_merge(std::string_view left, std::string_view right);
  bool added_token(const JsonPath& path, const JsonScalar& value);
  bool fact(const JsonPath& path, const JsonScalar& value);

  std::vector<std::pair<std::string, std::string>> facts_;
  size_t fact_bytes_ = 0;
  std::vector<std::string> pair_;
  std::string added_index_;
};

[[nodiscard]] bool begins(std::string_view text, std::string_view with);
[[nodiscard]] bool ends(std::string_view text, std::string_view with);

}  // namespace sluice::hf

// Builds the JSON tree from parser events, so that limits are enforced while it grows.
#include "openai/json.h"

#include <algorithm>
#include <charconv>
#include <vector>

namespace sluice::openai {
namespace {

class Builder final : public Json::json_sax_t {
 public:
  bool null() override { return put(nullptr); }
  bool boolean(bool v) override { return put(v); }
  bool number_integer(int64_t v) override { return put(v); }
  bool number_unsigned(uint64_t v) override { return put(v); }
  bool number_float(double v, const std::string&) override { return put(v); }
  bool string(std::string& v) override { return put(std::move(v)); }
  bool binary(Json::binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Json::value_t::object); }
  bool start_array(size_t) override { return open(Json::value_t::array); }
  bool key(std::string& k) override {
    key_ = std::move(k);
    return true;
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& why) override {
    constexpr int kOutOfRange = 406;  // nlohmann's number for 1e400
    problem = why.id == kOutOfRange ? "The JSON of the request has a number that is out of range."
                                    : "The body of the request is not valid JSON.";
    return false;
  }

  Json root;
  const char* problem = nullptr;

 private:
  bool refuse(const char* why) {
    problem = why;
    return false;
  }
  bool put(Json value) {
    if (++n_values_ > kMaxValues) return refuse("The JSON of the request has too many values.");
    Json* at = place();
    if (at == nullptr) return refuse("An object of the request has too many members.");
    *at = std::move(value);
    last_ = at;
    return true;
  }
  bool open(Json::value_t type) {
    if (open_.size() == kMaxDepth) return refuse("The JSON of the request is nested too deeply.");
    if (!put(type)) return false;
    open_.push_back(last_);
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  // Only the innermost container grows, so pointers to open containers stay valid. Of duplicate
  // members, the last one counts.
  Json* place() {
    if (open_.empty()) return &root;
    if (auto* list = open_.back()->get_ptr<Json::array_t*>()) return &list->emplace_back();
    auto& object = *open_.back()->get_ptr<Json::object_t*>();
    return object.size() < kMaxMembers ? &object[key_] : nullptr;
  }

  std::vector<Json*> open_;
  std::string key_;
  Json* last_ = nullptr;
  size_t n_values_ = 0;
};

// The code unit of an escape such as \ud83d at `at`; -1 if there is none.
int escaped_unit(std::string_view text, size_t at) {
  if (at + 6 > text.size() || text[at] != '\\' || text[at + 1] != 'u') return -1;
  int unit = 0;
  const char* end = text.data() + at + 6;
  const auto [rest, bad] = std::from_chars(text.data() + at + 2, end, unit, 16);
  return bad == std::errc() && rest == end ? unit : -1;
}

bool is_high(int unit) {
  return unit >= 0xd800 && unit < 0xdc00;
}
bool is_low(int unit) {
  return unit >= 0xdc00 && unit < 0xe000;
}

// Walks over valid JSON without reading it.
class Skimmer {
 public:
  explicit Skimmer(std::string_view text) : text_(text) {
    if (text.starts_with("\xef\xbb\xbf")) at_ = 3;
  }

  // True if the next character is `c`, which is then skipped, with white space around it.
  bool take(char c) {
    space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    space();
    return true;
  }
  std::string_view string() {
    const size_t from = at_++;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    return text_.substr(from, ++at_ - from);
  }
  std::string_view value() {
    const size_t from = at_;
    size_t depth = 0;
    do {
      if (at_ >= text_.size()) break;
      const char c = text_[at_];
      if (c == '"') {
        string();
      } else if (c == '[' || c == '{') {
        ++depth;
        ++at_;
      } else if (c == ']' || c == '}') {
        --depth;
        ++at_;
      } else if (depth > 0) {
        ++at_;
      } else {
        at_ = std::min(text_.find_first_of(",]} \t\r\n", at_), text_.size());
      }
    } while (depth > 0);
    return text_.substr(from, at_ - from);
  }

 private:
  void space() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }

  const std::string_view text_;
  size_t at_ = 0;
};

// Whether the text of a string, with its quotes, says `key`.
bool is_key(std::string_view quoted, std::string_view key) {
  if (quoted.find('\\') == std::string_view::npos) {
    return quoted.substr(1, quoted.size() - 2) == key;
  }
  return Json::parse(quoted, nullptr, /*allow_exceptions=*/false) == key;
}

}  // namespace

std::string replace_lone_surrogates(std::string_view text) {
  std::string out(text);
  for (size_t at = 0; (at = out.find('\\', at)) != std::string::npos;) {
    const int unit = escaped_unit(out, at);
    if (is_high(unit) && is_low(escaped_unit(out, at + 6))) {
      at += 12;
    } else if (is_high(unit) || is_low(unit)) {
      out.replace(at, 6, "\\ufffd");
      at += 6;
    } else {
      at += 2;
    }
  }
  return out;
}

std::string_view member_text(std::string_view object, std::string_view key) {
  Skimmer skim(object);
  std::string_view found;
  if (!skim.take('{')) return {};
  while (!skim.take('}')) {
    const bool same = is_key(skim.string(), key);
    if (!skim.take(':')) return {};
    const std::string_view value = skim.value();
    if (same) found = value;
    if (!skim.take(',') && value.empty()) return {};
  }
  return found == "null" ? std::string_view() : found;
}

Result<Json> parse_body(std::string_view text) {
  Builder builder;
  const bool whole =
      Json::sax_parse(text.begin(), text.end(), static_cast<Json::json_sax_t*>(&builder));
  if (whole && builder.problem == nullptr) return std::move(builder.root);
  return error(
      Code::kInvalidArgument, "%s",
      builder.problem != nullptr ? builder.problem : "The body of the request is not valid JSON.");
}

std::string to_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace sluice::openai

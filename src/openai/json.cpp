// Builds the JSON tree itself, so that limits are enforced while it grows, and prints it itself:
// nlohmann's parser and printer would add 9 kB to chat.wasm.
#include "openai/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/surrogates.h"
#include "jinja/json_text.h"
#include "jinja/numbers.h"
#include "tokenizer/utf8.h"

namespace sluice::openai {
namespace {

std::string_view without_bom(std::string_view text) {
  return text.starts_with("\xef\xbb\xbf") ? text.substr(3) : text;
}

// Reads text that is_json() accepts.
class Builder {
 public:
  explicit Builder(std::string_view text) : text_(text) { space(); }

  bool value(Json* out, size_t depth = 0) {
    if (++n_values_ > kMaxValues) return refuse("The JSON of the request has too many values.");
    const bool object = take('{');
    if (!object && !take('[')) return scalar(out);
    if (depth == kMaxDepth) return refuse("The JSON of the request is nested too deeply.");
    *out = object ? Json::object() : Json::array();
    while (!take(object ? '}' : ']')) {
      Json* at = object ? place(*out->get_ptr<Json::object_t*>()) : &out->emplace_back();
      if (at == nullptr) return refuse("An object of the request has too many members.");
      if (!value(at, depth + 1)) return false;
      take(',');
    }
    return true;
  }
  [[nodiscard]] const char* problem() const { return problem_; }

 private:
  bool refuse(const char* why) {
    problem_ = why;
    return false;
  }
  void space() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }
  bool take(char c) {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    space();
    return true;
  }
  // The text of a value that is no container.
  std::string_view token() {
    const size_t from = at_;
    if (text_[at_] == '"') {
      for (++at_; text_[at_] != '"'; ++at_) at_ += text_[at_] == '\\' ? 1 : 0;
      ++at_;
    } else {
      at_ = std::min(text_.find_first_of(",]} \t\r\n", at_), text_.size());
    }
    const std::string_view token = text_.substr(from, at_ - from);
    space();
    return token;
  }
  // The member whose name follows. Of duplicate members, the last one counts.
  Json* place(Json::object_t& object) {
    const std::string key = json_string(token());
    take(':');
    return object.size() < kMaxMembers ? &object[key] : nullptr;
  }
  bool scalar(Json* out) {
    const std::string_view text = token();
    switch (json_type(text)) {
      case JsonType::kString:
        *out = json_string(text);
        return true;
      case JsonType::kNumber:
        return number(text, out);
      case JsonType::kBoolean:
        *out = text == "true";
        return true;
      default:
        *out = nullptr;
        return true;
    }
  }
  bool number(std::string_view text, Json* out) {
    const char* end = text.data() + text.size();
    if (text.find_first_of(".eE") == std::string_view::npos) {
      const auto read = [&](auto whole) {
        const auto [rest, bad] = std::from_chars(text.data(), end, whole);
        if (rest != end || bad != std::errc()) return false;
        *out = whole;
        return true;
      };
      if (read(uint64_t{0}) || read(int64_t{0})) return true;
    }
    const std::optional<double> real = jinja::read_double(text);
    if (!real) return refuse("The JSON of the request has a number that is out of range.");
    *out = *real;
    return true;
  }

  const std::string_view text_;
  size_t at_ = 0, n_values_ = 0;
  const char* problem_ = nullptr;
};

void write(const Json& value, std::string* out) {
  if (const auto* object = value.get_ptr<const Json::object_t*>()) {
    char before = '{';
    for (const auto& [name, member] : *object) {
      *out += before;
      *out += string_text(name);
      *out += ':';
      write(member, out);
      before = ',';
    }
    *out += object->empty() ? "{}" : "}";
  } else if (const auto* list = value.get_ptr<const Json::array_t*>()) {
    char before = '[';
    for (const Json& item : *list) {
      *out += before;
      write(item, out);
      before = ',';
    }
    *out += list->empty() ? "[]" : "]";
  } else if (const auto* text = value.get_ptr<const std::string*>()) {
    *out += string_text(*text);
  } else if (const auto* flag = value.get_ptr<const bool*>()) {
    *out += *flag ? "true" : "false";
  } else if (const auto* natural = value.get_ptr<const uint64_t*>()) {
    *out += std::to_string(*natural);
  } else if (const auto* whole = value.get_ptr<const int64_t*>()) {
    *out += std::to_string(*whole);
  } else if (const auto* real = value.get_ptr<const double*>()) {
    *out += number_text(*real);
  } else {
    *out += "null";
  }
}

// The code unit of an escape such as \ud83d at `at`; 0 if there is none.
uint32_t escaped_unit(std::string_view text, size_t at) {
  if (at + 6 > text.size() || text[at] != '\\' || text[at + 1] != 'u') return 0;
  uint32_t unit = 0;
  const char* end = text.data() + at + 6;
  const auto [rest, bad] = std::from_chars(text.data() + at + 2, end, unit, 16);
  return bad == std::errc() && rest == end ? unit : 0;
}

}  // namespace

std::string replace_lone_surrogates(std::string_view text) {
  std::string out(text);
  for (size_t at = 0; (at = out.find('\\', at)) != std::string::npos;) {
    const uint32_t unit = escaped_unit(out, at);
    if (is_high_surrogate(unit) && is_low_surrogate(escaped_unit(out, at + 6))) {
      at += 12;
    } else if (!is_scalar_value(unit)) {
      out.replace(at, 6, "\\ufffd");
      at += 6;
    } else {
      at += 2;
    }
  }
  return out;
}

std::string_view member_text(std::string_view object, std::string_view key) {
  const std::string_view found = json_member(without_bom(object), key).value_or(std::string_view());
  return found == "null" ? std::string_view() : found;
}

Result<Json> parse_body(std::string_view text) {
  text = without_bom(text);
  Json root;
  Builder builder(text);
  if (!tokenizer::is_valid_utf8(text) || !is_json(text)) {
    return error(Code::kInvalidArgument, "The body of the request is not valid JSON.");
  }
  if (!builder.value(&root)) return error(Code::kInvalidArgument, "%s", builder.problem());
  return root;
}

std::string string_text(std::string_view text) {
  if (tokenizer::is_valid_utf8(text)) return json_quote(text);
  std::string valid;
  tokenizer::append_valid_utf8(text, tokenizer::Replace::kEachPart, &valid);
  return json_quote(valid);
}

std::string number_text(double value) {
  if (!std::isfinite(value)) return "null";
  char digits[64];
  return {digits, nlohmann::detail::to_chars(digits, digits + sizeof digits, value)};
}

std::string to_text(const Json& value) {
  std::string out;
  write(value, &out);
  return out;
}

}  // namespace sluice::openai

// A recursive-descent checker, and walks over text that it has accepted.
#include "jinja/json_text.h"

#include <algorithm>
#include <cstdio>

#include "base/surrogates.h"
#include "tokenizer/utf8.h"

namespace sluice {
namespace {

bool is_json_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_hex(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

class Checker {
 public:
  explicit Checker(std::string_view text) : text_(text) {}

  JsonCheck whole() {
    const bool valid = value(0);
    skip_space();
    if (valid && at_ == text_.size()) return JsonCheck::kValid;
    return too_deep_ ? JsonCheck::kTooDeep : JsonCheck::kInvalid;
  }

 private:
  [[nodiscard]] char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void skip_space() {
    while (is_json_space(peek())) ++at_;
  }
  bool word(std::string_view wanted) {
    if (text_.substr(at_, wanted.size()) != wanted) return false;
    at_ += wanted.size();
    return true;
  }
  bool digits() {
    const size_t start = at_;
    while (is_digit(peek())) ++at_;
    return at_ > start;
  }

  bool number() {
    take('-');
    if (!take('0') && !digits()) return false;
    if (take('.') && !digits()) return false;
    if (!take('e') && !take('E')) return true;
    if (!take('+')) take('-');
    return digits();
  }

  bool string() {
    if (!take('"')) return false;
    while (at_ < text_.size()) {
      const auto c = static_cast<unsigned char>(text_[at_++]);
      if (c == '"') return true;
      if (c < 0x20) return false;
      if (c != '\\') continue;
      const char escape = peek();
      ++at_;
      if (escape == 'u') {
        for (int i = 0; i < 4; ++i, ++at_) {
          if (!is_hex(peek())) return false;
        }
      } else if (escape == '\0' ||
                 std::string_view("\"\\/bfnrt").find(escape) == std::string::npos) {
        return false;
      }
    }
    return false;
  }

  bool container(char close, size_t depth) {
    too_deep_ = depth >= kMaxJsonDepth;
    if (too_deep_) return false;
    ++at_;
    skip_space();
    if (take(close)) return true;
    for (;;) {
      if (close == '}') {
        skip_space();
        if (!string()) return false;
        skip_space();
        if (!take(':')) return false;
      }
      if (!value(depth + 1)) return false;
      skip_space();
      if (take(close)) return true;
      if (!take(',')) return false;
    }
  }

  bool value(size_t depth) {
    skip_space();
    switch (peek()) {
      case '{':
        return container('}', depth);
      case '[':
        return container(']', depth);
      case '"':
        return string();
      case 't':
        return word("true");
      case 'f':
        return word("false");
      case 'n':
        return word("null");
      default:
        return number();
    }
  }

  std::string_view text_;
  size_t at_ = 0;
  bool too_deep_ = false;
};

// Walks over valid JSON.
class Walker {
 public:
  explicit Walker(std::string_view text) : text_(text) {}

  [[nodiscard]] char next() {  // the next character that is not white space; '\0' at the end
    while (at_ < text_.size() && is_json_space(text_[at_])) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  // Whether another part of the container follows. Skips its opening bracket and commas.
  [[nodiscard]] bool more() {
    if (at_ == 0) {
      static_cast<void>(next());
      ++at_;
    }
    if (next() == ',') ++at_;
    const char c = next();
    return c != '\0' && c != '}' && c != ']';
  }
  void skip() { ++at_; }

  std::string_view value() {
    static_cast<void>(next());
    const size_t start = at_;
    size_t depth = 0;
    do {
      const char c = at_ < text_.size() ? text_[at_] : '\0';
      if (c == '\0') break;
      if (c == '"') {
        for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
          if (text_[at_] == '\\') ++at_;
        }
        ++at_;
      } else if (c == '{' || c == '[') {
        ++depth;
        ++at_;
      } else if (c == '}' || c == ']') {
        if (depth == 0) break;
        --depth;
        ++at_;
      } else if (depth > 0) {
        ++at_;
      } else {
        while (at_ < text_.size() &&
               std::string_view(",]}: \t\r\n").find(text_[at_]) == std::string_view::npos) {
          ++at_;
        }
        break;
      }
    } while (depth > 0);
    at_ = std::min(at_, text_.size());
    return text_.substr(start, at_ - start);
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
};

uint32_t hex4(std::string_view digits) {
  uint32_t code = 0;
  for (const char c : digits.substr(0, 4)) {
    const int digit = is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10;
    code = code << 4 | static_cast<uint32_t>(digit);
  }
  return code;
}

}  // namespace

JsonCheck check_json(std::string_view text) {
  return Checker(text).whole();
}

JsonType json_type(std::string_view value) {
  switch (Walker(value).next()) {
    case '\0':
      return JsonType::kNone;
    case '{':
      return JsonType::kObject;
    case '[':
      return JsonType::kArray;
    case '"':
      return JsonType::kString;
    case 't':
    case 'f':
      return JsonType::kBoolean;
    case 'n':
      return JsonType::kNull;
    default:
      return JsonType::kNumber;
  }
}

std::vector<JsonMember> json_members(std::string_view value) {
  std::vector<JsonMember> out;
  if (json_type(value) != JsonType::kObject) return out;
  for (Walker walker(value); walker.more();) {
    std::string name = json_string(walker.value());
    if (walker.next() == ':') walker.skip();
    out.push_back({std::move(name), walker.value()});
  }
  return out;
}

std::optional<std::string_view> json_member(std::string_view value, std::string_view name) {
  std::optional<std::string_view> found;
  for (const JsonMember& member : json_members(value)) {
    if (member.name == name) found = member.value;
  }
  return found;
}

std::vector<std::string_view> json_items(std::string_view value) {
  std::vector<std::string_view> out;
  if (json_type(value) != JsonType::kArray) return out;
  for (Walker walker(value); walker.more();) out.push_back(walker.value());
  return out;
}

std::string json_string(std::string_view value) {
  std::string out;
  if (json_type(value) != JsonType::kString) return out;
  value.remove_prefix(value.find('"') + 1);
  for (size_t at = 0; at < value.size() && value[at] != '"'; ++at) {
    if (value[at] != '\\' || at + 1 >= value.size()) {
      out += value[at];
      continue;
    }
    const char escape = value[++at];
    if (escape == 'u') {
      uint32_t code = hex4(value.substr(at + 1));
      at += 4;
      const std::string_view low = value.substr(std::min(at + 1, value.size()), 6);
      if (is_high_surrogate(code) && low.size() == 6 && low.starts_with("\\u")) {
        const uint32_t second = hex4(low.substr(2));
        if (is_low_surrogate(second)) {
          code = joined_surrogates(code, second);
          at += 6;
        }
      }
      append_code_point(code, &out);
      continue;
    }
    constexpr std::string_view kFrom = "bfnrt", kTo = "\b\f\n\r\t";
    const size_t known = kFrom.find(escape);
    out += known == std::string_view::npos ? escape : kTo[known];
  }
  return out;
}

std::string json_compact(std::string_view value) {
  std::string out;
  bool inside = false;
  for (size_t i = 0; i < value.size(); ++i) {
    if (!inside && is_json_space(value[i])) continue;
    out += value[i];
    if (value[i] == '"') inside = !inside;
    if (inside && value[i] == '\\' && i + 1 < value.size()) out += value[++i];
  }
  return out;
}

std::string json_quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
      out += escape;
    } else {
      out += c;
    }
  }
  return out + '"';
}

void append_code_point(uint32_t code, std::string* out) {
  tokenizer::append_utf8(is_scalar_value(code) ? code : 0xfffd, out);
}

}  // namespace sluice

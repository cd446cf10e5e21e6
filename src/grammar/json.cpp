// The JSON parser and queries on documents.
#include "grammar/json.h"

#include <algorithm>

#include "base/surrogates.h"
#include "grammar/char_class.h"
#include "grammar/decimal.h"
#include "grammar/grammar.h"
#include "grammar/source.h"

namespace sluice::grammar {

class JsonParser {
 public:
  explicit JsonParser(std::string_view text) : in_(text) {}

  // `used`: parse a value at the beginning and store its length; null: parse the whole text.
  Result<JsonDocument> parse(size_t* used) {
    skip_space();
    SLUICE_RETURN_IF_ERROR(value(kNoValue, {}, 0));
    if (used != nullptr) {
      *used = in_.position();
      return std::move(out_);
    }
    skip_space();
    if (!in_.at_end()) return in_.fail("unexpected text after the JSON value");
    return std::move(out_);
  }

 private:
  void skip_space() {
    while (in_.peek() == ' ' || in_.peek() == '\n' || in_.peek() == '\r' || in_.peek() == '\t') {
      in_.skip();
    }
  }

  Status value(uint32_t parent, std::string key, int depth) {
    if (depth > kMaxNesting) return in_.fail("the JSON nesting is too deep");
    if (out_.values_.size() >= kMaxValues) return in_.fail("the JSON text has too many values");
    const uint32_t id = out_.size();
    out_.values_.emplace_back();
    JsonValue& v = out_.values_.back();
    v.parent = parent;
    v.key = std::move(key);
    if (parent != kNoValue) {
      v.index = static_cast<uint32_t>(out_.values_[parent].children.size());
      out_.values_[parent].children.push_back(id);
    }
    const char c = in_.peek();
    if (c == '{' || c == '[') return container(id, depth);
    if (c == '"') {
      v.type = JsonType::kString;
      return string(&v.text);
    }
    if (in_.take("null")) return {};
    v.type = JsonType::kBoolean;
    v.truth = in_.take("true");
    if (v.truth || in_.take("false")) return {};
    v.type = JsonType::kNumber;
    return number(&v.text);
  }

  Status container(uint32_t id, int depth) {
    const bool object = in_.peek() == '{';
    const char* const close = object ? "}" : "]";
    out_.values_[id].type = object ? JsonType::kObject : JsonType::kArray;
    in_.skip();
    skip_space();
    if (in_.take(close)) return {};
    do {
      skip_space();
      std::string key;
      if (object) {
        const size_t start = in_.position();
        if (in_.peek() != '"') return in_.fail("expected the name of a member");
        if (out_.values_[id].children.size() >= kMaxMembers)
          return in_.fail("this object has too many members");
        SLUICE_RETURN_IF_ERROR(string(&key));
        if (out_.find(id, key) != kNoValue)
          return in_.fail_at(start, "this member is defined twice");
        skip_space();
        if (!in_.take(":")) return in_.fail("expected \":\"");
        skip_space();
      }
      SLUICE_RETURN_IF_ERROR(value(id, std::move(key), depth + 1));
      skip_space();
    } while (in_.take(","));
    if (!in_.take(close))
      return in_.fail(object ? "expected \",\" or \"}\"" : "expected \",\" or \"]\"");
    return {};
  }

  Status string(std::string* out) {
    const size_t start = in_.position();
    in_.skip();
    while (in_.peek() != '"') {
      if (in_.at_end()) return in_.fail_at(start, "this string is not closed");
      if (static_cast<uint8_t>(in_.peek()) < 0x20)
        return in_.fail("control characters in a string must be escaped");
      Result<uint32_t> c = in_.peek() == '\\' ? escape() : in_.next_char();
      if (!c.ok()) return c.status();
      append_utf8(*c, out);
    }
    in_.skip();
    return {};
  }

  Result<uint32_t> escape() {
    const size_t start = in_.position();
    in_.skip();
    const char c = in_.peek();
    in_.skip();
    const char* const known = "\"\"\\\\//b\bf\fn\nr\rt\t";
    for (const char* k = known; *k != 0; k += 2) {
      if (*k == c) return static_cast<uint32_t>(k[1]);
    }
    if (c != 'u') return in_.fail_at(start, "unknown escape");
    Result<uint32_t> high = in_.hex(4);
    if (!high.ok() || is_scalar_value(*high)) return high;
    if (!is_high_surrogate(*high) || !in_.take("\\u")) {
      return in_.fail_at(start, "unpaired surrogate");
    }
    const Result<uint32_t> low = in_.hex(4);
    if (!low.ok()) return low;
    if (!is_low_surrogate(*low)) return in_.fail_at(start, "unpaired surrogate");
    return joined_surrogates(*high, *low);
  }

  bool digits() {
    const size_t start = in_.position();
    while (in_.peek() >= '0' && in_.peek() <= '9') in_.skip();
    return in_.position() > start;
  }

  Status number(std::string* out) {
    const size_t start = in_.position();
    static_cast<void>(in_.take("-"));
    bool good = in_.take("0") || digits();
    if (good && in_.take(".")) good = digits();
    if (good && (in_.peek() | 0x20) == 'e') {
      in_.skip();
      if (in_.peek() == '+' || in_.peek() == '-') in_.skip();
      good = digits();
    }
    if (!good) return in_.fail_at(start, "expected a JSON value");
    *out = in_.since(start);
    return {};
  }

  Source in_;
  JsonDocument out_;
};

Result<JsonDocument> JsonDocument::parse(std::string_view text) {
  return JsonParser(text).parse(nullptr);
}

Result<JsonDocument> JsonDocument::parse(std::string_view text, size_t* used) {
  return JsonParser(text).parse(used);
}

uint32_t JsonDocument::find(uint32_t object, std::string_view key) const {
  if (object == kNoValue || values_[object].type != JsonType::kObject) return kNoValue;
  for (const uint32_t child : values_[object].children) {
    if (values_[child].key == key) return child;
  }
  return kNoValue;
}

std::string JsonDocument::pointer(uint32_t v) const {
  std::string out;
  for (; values_[v].parent != kNoValue; v = values_[v].parent) {
    std::string part = "/";
    if (values_[values_[v].parent].type == JsonType::kArray) {
      part += std::to_string(values_[v].index);
    } else {
      for (const char c : values_[v].key) {
        if (c == '~') {
          part += "~0";
        } else if (c == '/') {
          part += "~1";
        } else {
          part += c;
        }
      }
    }
    out.insert(0, part);
  }
  return out;
}

bool JsonDocument::equal(uint32_t a, uint32_t b) const {
  const JsonValue& x = values_[a];
  const JsonValue& y = values_[b];
  if (x.type != y.type || x.truth != y.truth || x.children.size() != y.children.size())
    return false;
  if (x.type == JsonType::kNumber) {
    const auto first = Decimal::parse(x.text), second = Decimal::parse(y.text);
    return first && second && *first == *second;
  }
  if (x.text != y.text) return false;
  for (size_t i = 0; i < x.children.size(); ++i) {
    const uint32_t other =
        x.type == JsonType::kObject ? find(b, values_[x.children[i]].key) : y.children[i];
    if (other == kNoValue || !equal(x.children[i], other)) return false;
  }
  return true;
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const uint8_t byte = static_cast<uint8_t>(c);
    const char* const known = "\bb\ff\nn\rr\tt\"\"\\\\";
    char letter = 0;
    for (const char* k = known; *k != 0; k += 2) {
      if (*k == c) letter = k[1];
    }
    if (letter != 0) {
      out += '\\';
      out += letter;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += static_cast<char>('0' + (byte >> 4));
      out += "0123456789abcdef"[byte & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace sluice::grammar

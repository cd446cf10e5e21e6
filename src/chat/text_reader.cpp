// Awaits stand alone in their statements, and nothing in them needs a destructor: GCC 12 destroys
// such temporaries twice.
#include "chat/text_reader.h"

#include <algorithm>
#include <cstring>

#include "chat/json_text.h"

namespace sluice::chat {
namespace {

constexpr int kMaxLiteralDepth = 100;

bool is_word(int c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}
bool is_mark_word(int c) {
  return is_word(c) || c == '-';
}
bool is_literal_word(int c) {
  return is_word(c) || c == '.' || c == '+' || c == '-';
}
bool is_member_name(int c) {
  return c >= 0 && c < 0xfe && !TextReader::is_space(c) && std::strchr(":=,{}()[]", c) == nullptr;
}

bool is_list_space(int c) {
  return TextReader::is_space(c) || c == ',';
}

bool is_digits(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::optional<std::string> whole_number(std::string_view digits, unsigned base) {
  uint64_t value = 0;
  for (const char c : digits) {
    const int letter = (c | 0x20) - 'a' + 10;
    const auto digit = static_cast<unsigned>(c >= '0' && c <= '9' ? c - '0' : letter);
    if (digit >= base || value > (UINT64_MAX - digit) / base) return std::nullopt;
    value = value * base + digit;
  }
  if (digits.empty()) return std::nullopt;
  return std::to_string(value);
}

}  // namespace

void TextReader::resume() {
  if (waits_ && at >= text.size() && !ended) return;  // an escape may have moved past the end
  waits_ = false;
  while (!waits_ && next_) std::exchange(next_, nullptr).resume();
}

Step<bool> TextReader::skip(Class matches) {
  for (;;) {
    const int c = co_await peek();
    if (c == kEnd) co_return false;
    if (!matches(c)) co_return true;
    ++at;
  }
}

Step<bool> TextReader::take(std::string_view mark) {
  const size_t start = at;
  co_await skip(is_space);
  for (const char wanted : mark) {
    if (is_space(static_cast<unsigned char>(wanted))) {
      co_await skip(is_space);
    } else if (wanted == '#') {
      const size_t begin = at;
      co_await skip(is_mark_word);
      wild = text.substr(begin, at - begin);
    } else {
      const int c = co_await peek();
      if (c != static_cast<unsigned char>(wanted)) {
        at = start;
        co_return false;
      }
      ++at;
    }
  }
  co_return true;
}

Step<bool> TextReader::begins(std::string_view mark) {
  const size_t start = at;
  bool same = true;
  for (const char wanted : mark) {
    const int c = co_await peek();
    same = c == static_cast<unsigned char>(wanted);
    if (!same) break;
    ++at;
  }
  at = start;
  co_return same;
}

Step<std::optional<std::string>> TextReader::until(std::string_view mark) {
  const size_t start = at;
  for (;;) {
    const size_t found = text.find(mark, at);
    if (found != std::string::npos) {
      at = found + mark.size();
      co_return text.substr(start, found - start);
    }
    if (ended) break;
    // Does not search the same text again.
    const size_t searched = text.size() + 1 > mark.size() ? text.size() + 1 - mark.size() : 0;
    const size_t next = std::max(at, searched);
    at = text.size();
    co_await peek();
    at = next;
  }
  at = start;
  co_return std::nullopt;
}

Step<std::optional<std::string>> TextReader::json() {
  const size_t start = at;
  size_t depth = 0;
  bool inside = false;  // of a string
  do {
    const int c = co_await peek();
    // A control token is no part of JSON.
    if (c == kEnd || c == static_cast<unsigned char>(kTokenBegin)) co_return std::nullopt;
    ++at;
    if (inside) {
      if (c == '"') inside = false;
      if (c == '\\') ++at;
    } else if (c == '"') {
      inside = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (depth == 0) {
      co_return std::nullopt;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  } while (depth > 0 || inside);
  std::string value = text.substr(start, at - start);
  if (!is_json(value)) co_return std::nullopt;
  co_return std::move(value);
}

Step<std::optional<std::string>> TextReader::literal(std::string_view quote, int depth) {
  if (depth > kMaxLiteralDepth) co_return std::nullopt;
  co_await skip(is_space);
  const int c = co_await peek();
  if (c == '"' || c == '\'') {
    std::optional<std::string> string = co_await python_string();
    co_return std::move(string);
  }
  if (c == static_cast<unsigned char>(quote[0])) {
    const bool opened = co_await take(quote);
    if (!opened) co_return std::nullopt;
    const std::optional<std::string> inside = co_await until(quote);
    if (!inside) co_return std::nullopt;
    co_return json_quote(*inside);
  }
  if (c == '{') {
    ++at;
    std::optional<std::string> object = co_await members(':', '}', quote, depth + 1);
    co_return std::move(object);
  }
  if (c == '[' || c == '(') {
    ++at;
    std::optional<std::string> list = co_await items(c == '[' ? ']' : ')', quote, depth + 1);
    co_return std::move(list);
  }
  const size_t start = at;
  co_await skip(is_literal_word);
  const std::string word = text.substr(start, at - start);
  if (word == "True" || word == "true") co_return "true";
  if (word == "False" || word == "false") co_return "false";
  if (word == "None" || word == "null") co_return "null";
  co_return json_number(word);
}

Step<std::optional<std::string>> TextReader::members(char colon, char close, std::string_view quote,
                                                     int depth) {
  ObjectWriter out;
  const std::string between(1, colon);
  for (;;) {
    co_await skip(is_list_space);
    const int c = co_await peek();
    if (c == static_cast<unsigned char>(close)) {
      ++at;
      co_return out.json();
    }
    std::string name;
    if (c == '"' || c == '\'' || c == static_cast<unsigned char>(quote[0])) {
      const std::optional<std::string> given = co_await literal(quote);
      if (!given) co_return std::nullopt;
      name = json_string(*given);
    } else {
      const size_t start = at;
      co_await skip(is_member_name);
      name = text.substr(start, at - start);
    }
    if (name.empty()) co_return std::nullopt;
    const bool separated = co_await take(between);
    if (!separated) co_return std::nullopt;
    std::optional<std::string> value = co_await literal(quote, depth);
    if (!value) co_return std::nullopt;
    out.add(name, std::move(*value));
  }
}

Step<std::optional<std::string>> TextReader::items(char close, std::string_view quote, int depth) {
  std::string out = "[";
  for (;;) {
    co_await skip(is_list_space);
    const int c = co_await peek();
    if (c == static_cast<unsigned char>(close)) {
      ++at;
      co_return out + "]";
    }
    const std::optional<std::string> value = co_await literal(quote, depth);
    if (!value) co_return std::nullopt;
    if (out.size() > 1) out += ", ";
    out += *value;
  }
}

Step<std::optional<std::string>> TextReader::python_string() {
  std::string out;
  high_ = 0;
  const int quote = co_await peek();
  for (++at;;) {
    const int c = co_await peek();
    if (c == kEnd || c == static_cast<unsigned char>(kTokenBegin)) co_return std::nullopt;
    ++at;
    if (c == quote) co_return json_quote(out);
    if (c == '\\') {
      co_await escape(&out);
    } else {
      out += static_cast<char>(c);
    }
  }
}

// Reads an escape behind its backslash. Unknown ones stay as they are.
Step<bool> TextReader::escape(std::string* out) {
  const int c = co_await peek();
  if (c == kEnd) co_return false;
  ++at;
  const size_t n_digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  if (n_digits == 0) {
    constexpr std::string_view kFrom = "ntrbf\"'\\", kTo = "\n\t\r\b\f\"'\\";
    const size_t known = kFrom.find(static_cast<char>(c));
    if (c == '\n') co_return true;
    if (known == std::string_view::npos) *out += '\\';
    *out += known == std::string_view::npos ? static_cast<char>(c) : kTo[known];
    co_return true;
  }
  std::string hex;
  while (hex.size() < n_digits) {
    const int digit = co_await peek();
    if (digit == kEnd || std::strchr("0123456789abcdefABCDEF", digit) == nullptr) break;
    hex += static_cast<char>(digit);
    ++at;
  }
  uint32_t code = 0;
  for (const char digit : hex) {
    code =
        code << 4 | static_cast<uint32_t>(digit <= '9' ? digit - '0' : (digit | 0x20) - 'a' + 10);
  }
  if (hex.size() < n_digits || code > 0x10ffff) {
    *out += '\\';
    *out += static_cast<char>(c) + hex;
  } else {
    // Halves of a pair come one after another: as in UTF-16, they are one character.
    const std::string_view high = *out;
    if (code >= 0xdc00 && code < 0xe000 && high_ >= 0xd800 && high.size() == high_end_) {
      out->resize(out->size() - 3);
      code = 0x10000 + ((high_ - 0xd800) << 10) + (code - 0xdc00);
    }
    append_code_point(code, out);
    high_ = code >= 0xd800 && code < 0xdc00 ? code : 0;
    high_end_ = out->size();
  }
  co_return true;
}

void ObjectWriter::add(const std::string& name, std::string value) {
  const auto [at, is_new] = by_name_.try_emplace(name, members_.size());
  if (is_new) members_.emplace_back(name, std::string());
  members_[at->second].second = std::move(value);
}

std::string ObjectWriter::json() const {
  std::string out = "{";
  for (const auto& [name, value] : members_) {
    if (out.size() > 1) out += ", ";
    out += json_quote(name) + ": " + value;
  }
  return out + "}";
}

std::optional<std::string> json_number(std::string_view word) {
  std::string plain;
  for (const char c : word) {
    if (c != '_') plain += c;
  }
  std::string_view rest = plain;
  const bool negative = rest.starts_with('-');
  if (negative || rest.starts_with('+')) rest.remove_prefix(1);
  const std::string sign = negative ? "-" : "";
  if (rest.size() > 2 && rest[0] == '0' && is_word(rest[1]) && !is_digits(rest.substr(1, 1)) &&
      (rest[1] | 0x20) != 'e') {
    const char kind = static_cast<char>(rest[1] | 0x20);
    const unsigned base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    const std::optional<std::string> value =
        base > 0 ? whole_number(rest.substr(2), base) : std::nullopt;
    return value ? std::optional(sign + *value) : std::nullopt;
  }
  const size_t exponent = std::min(rest.find_first_of("eE"), rest.size());
  const std::string_view mantissa = rest.substr(0, exponent);
  const size_t point = std::min(mantissa.find('.'), mantissa.size());
  std::string_view whole = mantissa.substr(0, point);
  const std::string_view fraction = mantissa.substr(std::min(point + 1, mantissa.size()));
  if (!is_digits(whole) || !is_digits(fraction) || whole.size() + fraction.size() == 0) {
    return std::nullopt;
  }
  while (whole.size() > 1 && whole[0] == '0') whole.remove_prefix(1);
  std::string out = sign + (whole.empty() ? "0" : std::string(whole));
  if (point < mantissa.size()) out += "." + (fraction.empty() ? "0" : std::string(fraction));
  out += rest.substr(exponent);
  return is_json(out) ? std::optional(out) : std::nullopt;
}

}  // namespace sluice::chat

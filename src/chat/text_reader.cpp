// Awaits stand alone in their statements, and nothing in them needs a destructor: GCC 12 destroys
// such temporaries twice.
#include "chat/text_reader.h"

#include <algorithm>
#include <cstring>

#include "base/surrogates.h"
#include "jinja/json_text.h"
#include "jinja/numbers.h"

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
    const unsigned digit = jinja::digit_value(c);
    if (digit >= base || value > (UINT64_MAX - digit) / base) return std::nullopt;
    value = value * base + digit;
  }
  if (digits.empty()) return std::nullopt;
  return std::to_string(value);
}

// Python's string without its quotes. Unknown escapes stay as they are.
std::string without_escapes(std::string_view text) {
  std::string out;
  uint32_t high = 0;    // the first half of a surrogate pair that was just read,
  size_t high_end = 0;  // and where its text ends
  for (size_t at = 0; at < text.size();) {
    if (text[at] != '\\' || at + 1 == text.size()) {
      out += text[at++];
      continue;
    }
    const char c = text[at + 1];
    at += 2;
    const size_t n_digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (n_digits == 0) {
      constexpr std::string_view kFrom = "ntrbf\"'\\", kTo = "\n\t\r\b\f\"'\\";
      const size_t known = kFrom.find(c);
      if (c == '\n') continue;
      if (known == std::string_view::npos) out += '\\';
      out += known == std::string_view::npos ? c : kTo[known];
      continue;
    }
    const std::string_view digits = text.substr(at, n_digits);
    uint32_t code = 0;
    size_t n = 0;
    for (; n < digits.size() && jinja::digit_value(digits[n]) < 16; ++n) {
      code = code << 4 | jinja::digit_value(digits[n]);
    }
    at += n;
    if (n < n_digits || code > 0x10ffff) {
      out += '\\';
      out += c;
      out += digits.substr(0, n);
      continue;
    }
    // Halves of a pair come one after another: as in UTF-16, they are one character.
    if (is_low_surrogate(code) && is_high_surrogate(high) && out.size() == high_end) {
      out.resize(out.size() - 3);
      code = joined_surrogates(high, code);
    }
    append_code_point(code, &out);
    high = is_high_surrogate(code) ? code : 0;
    high_end = out.size();
  }
  return out;
}

}  // namespace

void TextReader::resume() {
  if (waits_for_ != nullptr && !(this->*waits_for_->poll)(waits_for_)) return;
  waits_for_ = nullptr;
  while (waits_for_ == nullptr && next_) std::exchange(next_, nullptr).resume();
}

// --- elementary reads

bool TextReader::poll_byte(Read*) {
  return at < text.size() || ended;
}

bool TextReader::poll_mark(Read* read) {
  const auto byte = [this] { return static_cast<unsigned char>(text[at]); };
  for (;; read->mark.remove_prefix(1)) {
    if (read->skipped != nullptr) {
      while (at < text.size() && read->skipped(byte())) ++at;
      if (at >= text.size() && !ended) return false;
      if (read->wild) wild = text.substr(read->from, at - read->from);
      read->skipped = nullptr;
      read->wild = false;
    }
    if (read->mark.empty()) break;
    const auto wanted = static_cast<unsigned char>(read->mark[0]);
    if (is_space(wanted)) {
      read->skipped = is_space;
    } else if (wanted == '#') {
      read->skipped = is_mark_word;
      read->wild = true;
      read->from = at;
    } else if (at >= text.size() && !ended) {
      return false;
    } else if (at >= text.size() || byte() != wanted) {
      at = read->start;
      return true;
    } else {
      ++at;
    }
  }
  read->found = true;
  return true;
}

bool TextReader::poll_begins(Read* read) {
  const std::string_view rest = std::string_view(text).substr(std::min(at, text.size()));
  read->found = rest.starts_with(read->mark);
  return read->found || ended || !read->mark.starts_with(rest);
}

bool TextReader::poll_until(Read* read) {
  const size_t end = text.find(read->mark, read->from);
  read->found = end != std::string::npos;
  if (read->found) {
    read->from = end;
    at = end + read->mark.size();
  } else if (text.size() + 1 > read->mark.size()) {
    read->from = std::max(read->from, text.size() + 1 - read->mark.size());  // not searched again
  }
  return read->found || ended;
}

bool TextReader::poll_json(Read* read) {
  do {
    if (at >= text.size()) return ended;
    const char c = text[at];
    if (c == kTokenBegin) return true;  // a control token is no part of JSON
    ++at;
    if (read->quote != 0) {
      if (c == read->quote) read->quote = 0;
      if (c == '\\') ++at;
    } else if (c == '"') {
      read->quote = c;
    } else if (c == '{' || c == '[') {
      ++read->depth;
    } else if (read->depth == 0) {
      return true;
    } else if (c == '}' || c == ']') {
      --read->depth;
    }
  } while (read->depth > 0 || read->quote != 0);
  read->from = at;
  read->found = is_json(std::string_view(text).substr(read->start, at - read->start));
  return true;
}

bool TextReader::poll_string(Read* read) {
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (read->quote == 0) {
      read->quote = c;
      ++read->start;
    } else if (c == read->quote) {
      read->from = at++;
      read->found = true;
      return true;
    } else if (c == kTokenBegin) {
      return true;
    } else if (c == '\\') {
      ++at;
    }
  }
  return ended;
}

std::optional<std::string> TextReader::taken(const Read& read) const {
  if (!read.found) return std::nullopt;
  return text.substr(read.start, read.from - read.start);
}

// --- literals

Step<std::optional<std::string>> TextReader::literal(std::string_view quote, int depth) {
  if (depth > kMaxLiteralDepth) co_return std::nullopt;
  co_await skip(is_space);
  const int c = co_await peek();
  if (c == '"' || c == '\'') {
    const std::optional<std::string> inside = co_await python_string();
    if (!inside) co_return std::nullopt;
    co_return json_quote(without_escapes(*inside));
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

void ObjectWriter::add(const std::string& name, std::string value) {
  for (auto& [known, old] : members_) {
    if (known == name) {
      old = std::move(value);
      return;
    }
  }
  members_.emplace_back(name, std::move(value));
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

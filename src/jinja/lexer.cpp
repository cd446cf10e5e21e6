// Finds tags and reads their contents.
#include "jinja/lexer.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "jinja/numbers.h"
#include "jinja/text.h"
#include "tokenizer/utf8.h"

namespace sluice::jinja {
namespace {

constexpr std::string_view kOperators[] = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "/",
                                           "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                           ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_start(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_' ||
         static_cast<uint8_t>(c) >= 0x80;
}

// Converts all newlines to \n and drops one at the end.
std::string normalized(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}
  Result<std::vector<Lexeme>> run();

 private:
  [[nodiscard]] std::string_view rest() const { return source_.substr(at_); }
  void advance(size_t n);
  void push(Lex kind, std::string_view text = {}) {
    out_.push_back({kind, std::string(text), 0, 0, line_});
  }
  void push_data(std::string_view text, char sign, bool may_strip_line);
  void close_tag(size_t length, char sign, bool takes_newline);
  Status comment();
  Result<bool> raw();
  Status inside(bool print);
  Status name_or_number();
  Status number();
  Status string();
  Status escape(std::string* out);

  std::string_view source_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  bool line_starts_ = true;  // the previous text ended with a newline
  std::vector<Lexeme> out_;
};

void Lexer::advance(size_t n) {
  const std::string_view passed = rest().substr(0, n);
  line_ += static_cast<uint32_t>(std::count(passed.begin(), passed.end(), '\n'));
  if (!passed.empty()) line_starts_ = passed.back() == '\n';
  at_ += passed.size();
}

// Emits the text before a tag that starts with `sign`. `may_strip_line`: the tag is a block or
// comment, so white space at the start of its line is dropped.
void Lexer::push_data(std::string_view text, char sign, bool may_strip_line) {
  const bool starts = line_starts_;
  const uint32_t line = line_;
  advance(text.size());
  if (sign == '-') {
    text = text.substr(0, trailing_space(text));
  } else if (sign != '+' && may_strip_line) {
    const size_t line_at = text.rfind('\n') + 1;
    const bool whole_line = line_at > 0 || starts;
    if (whole_line && leading_space(text.substr(line_at)) == text.size() - line_at) {
      text = text.substr(0, line_at);
    }
  }
  if (!text.empty()) out_.push_back({Lex::kData, std::string(text), 0, 0, line});
}

// Skips the end of a tag and the white space that it strips.
void Lexer::close_tag(size_t length, char sign, bool takes_newline) {
  advance(length);
  if (sign == '-') {
    advance(leading_space(rest()));
  } else if (sign != '+' && takes_newline && rest().starts_with('\n')) {
    advance(1);
  }
}

Status Lexer::comment() {
  const size_t end = source_.find("#}", at_ + 2);
  if (end == std::string_view::npos) return syntax_error(line_, "a comment is not closed");
  const char first = source_[at_ + 2];
  const size_t begin = at_ + (first == '-' || first == '+' ? 3 : 2);
  close_tag(end + 2 - at_, end > begin ? source_[end - 1] : '\0', true);
  return {};
}

// Reads {% raw %} … {% endraw %}; false if another tag is here.
Result<bool> Lexer::raw() {
  // The length of "{%", sign, white space, word and tag end; 0 if it is something else.
  const auto tag = [](std::string_view text, std::string_view word, char* closing) -> size_t {
    size_t i = 2;
    if (i < text.size() && (text[i] == '-' || text[i] == '+')) ++i;
    i += leading_space(text.substr(std::min(i, text.size())));
    if (!text.substr(std::min(i, text.size())).starts_with(word)) return 0;
    i += word.size();
    i += leading_space(text.substr(i));
    *closing = i < text.size() ? text[i] : '\0';
    if (*closing == '-' || *closing == '+') ++i;
    return text.substr(i).starts_with("%}") ? i + 2 : 0;
  };
  char closing = '\0';
  const size_t opened = tag(rest(), "raw", &closing);
  if (opened == 0) return false;
  close_tag(opened, closing, false);
  for (size_t from = at_;; from += 2) {
    from = source_.find("{%", from);
    if (from == std::string_view::npos) return syntax_error(line_, "a raw block is not closed");
    const size_t closed = tag(source_.substr(from), "endraw", &closing);
    if (closed == 0) continue;
    push_data(source_.substr(at_, from - at_), source_[from + 2], true);
    close_tag(closed, closing, true);
    return true;
  }
}

Result<std::vector<Lexeme>> Lexer::run() {
  while (at_ < source_.size()) {
    size_t tag = at_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == std::string_view::npos || tag + 1 >= source_.size()) tag = source_.size();
      if (tag == source_.size() || std::string_view("{%#").find(source_[tag + 1]) < 3) break;
    }
    if (tag == source_.size()) {
      push_data(rest(), '\0', false);
      break;
    }
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    push_data(source_.substr(at_, tag - at_), sign, kind != '{');
    if (kind == '#') {
      SLUICE_RETURN_IF_ERROR(comment());
      continue;
    }
    if (kind == '%') {
      Result<bool> was_raw = raw();
      if (!was_raw.ok()) return was_raw.status();
      if (*was_raw) continue;
    }
    push(kind == '{' ? Lex::kOpenPrint : Lex::kOpenBlock);
    advance(sign == '-' || sign == '+' ? 3 : 2);
    SLUICE_RETURN_IF_ERROR(inside(kind == '{'));
  }
  push(Lex::kEnd);
  return std::move(out_);
}

// Reads the lexemes of a tag, and its end.
Status Lexer::inside(bool print) {
  const std::string_view end = print ? "}}" : "%}";
  std::string open;  // brackets
  for (;;) {
    advance(leading_space(rest()));
    if (at_ == source_.size()) return syntax_error(line_, "a tag is not closed");
    const char c = source_[at_];
    const bool sign = c == '-' || (c == '+' && !print);
    if (open.empty() && (rest().starts_with(end) || (sign && rest().substr(1).starts_with(end)))) {
      push(print ? Lex::kClosePrint : Lex::kCloseBlock);
      close_tag(sign ? 3 : 2, sign ? c : '\0', !print);
      return {};
    }
    if (is_name_start(c) || is_digit(c)) {
      SLUICE_RETURN_IF_ERROR(name_or_number());
      continue;
    }
    if (c == '\'' || c == '"') {
      SLUICE_RETURN_IF_ERROR(string());
      continue;
    }
    const auto* found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                     [&](std::string_view op) { return rest().starts_with(op); });
    if (found == std::end(kOperators)) {
      return syntax_error(line_, "unexpected character '%.1s'", &c);
    }
    if (const size_t kind = std::string_view("([{").find(c); kind < 3) {
      open += ")]}"[kind];
    } else if (std::string_view(")]}").find(c) < 3) {
      if (open.empty() || open.back() != c) return syntax_error(line_, "unexpected '%.1s'", &c);
      open.pop_back();
    }
    push(Lex::kOperator, *found);
    advance(found->size());
  }
}

Status Lexer::name_or_number() {
  if (is_digit(source_[at_])) return number();
  size_t n = 1;
  while (n < rest().size() && (is_name_start(rest()[n]) || is_digit(rest()[n]))) ++n;
  push(Lex::kName, rest().substr(0, n));
  advance(n);
  return {};
}

Status Lexer::number() {
  const std::string_view text = rest();
  unsigned base = 10;
  size_t n = 0;
  if (text[0] == '0' && text.size() > 2) {
    const char letter = static_cast<char>(text[1] | 0x20);
    base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
    if (base != 10) n = 2;
  }
  std::string digits;
  bool real = false;
  for (; n < text.size(); ++n) {
    const char c = text[n];
    const bool digit = base == 16 ? std::isxdigit(static_cast<unsigned char>(c)) != 0 : is_digit(c);
    const bool next_digit = n + 1 < text.size() && is_digit(text[n + 1]);
    if (digit) {
      digits += c;
    } else if (c == '.' && base == 10 && !real && next_digit) {
      real = true;
      digits += c;
    } else if ((c == 'e' || c == 'E') && base == 10 && digits.find('e') == std::string::npos &&
               (next_digit || (n + 2 < text.size() && (text[n + 1] == '-' || text[n + 1] == '+') &&
                               is_digit(text[n + 2])))) {
      real = true;
      digits += 'e';
      if (!next_digit && text[++n] == '-') digits += '-';
    } else if (c != '_') {
      break;
    }
  }
  push(real ? Lex::kFloat : Lex::kInt, digits);
  Lexeme& lexeme = out_.back();
  bool valid = false, beyond = false;
  if (real) {
    const std::optional<double> number = read_double(digits);
    valid = number.has_value();
    lexeme.number = number.value_or(0);
  } else {
    const std::optional<int64_t> whole = read_whole(digits, base);
    valid = whole.has_value();
    lexeme.integer = whole.value_or(0);
    beyond = !valid && base == 10 && !digits.empty() &&
             digits.find_first_not_of("0123456789") == std::string::npos;
  }
  if (beyond) {
    lexeme.kind = Lex::kNumeral;
  } else if (!valid) {
    return syntax_error(line_, "the number %.40s is invalid or too large", digits.c_str());
  }
  advance(n);
  return {};
}

Status Lexer::string() {
  const char quote = source_[at_];
  const size_t begin = at_;
  const uint32_t line = line_;
  std::string text;
  advance(1);
  while (at_ < source_.size() && source_[at_] != quote) {
    if (source_[at_] == '\\') {
      advance(1);
      SLUICE_RETURN_IF_ERROR(escape(&text));
    } else {
      text += source_[at_];
      advance(1);
    }
  }
  if (at_ == source_.size()) {
    const std::string shown(source_.substr(begin, 40));
    return syntax_error(line, "a string is not closed: %s", shown.c_str());
  }
  advance(1);
  push(Lex::kString, text);
  return {};
}

// Decodes an escape as Python's unicode-escape does.
Status Lexer::escape(std::string* out) {
  if (at_ == source_.size()) return {};  // the string is unterminated; the caller reports it
  static constexpr std::string_view kLetters = "nrtabfv\\'\"";
  static constexpr std::string_view kMeant = "\n\r\t\a\b\f\v\\'\"";
  const char c = source_[at_];
  if (const size_t i = kLetters.find(c); i != std::string_view::npos) {
    *out += kMeant[i];
    advance(1);
    return {};
  }
  if (c == '\n') {
    advance(1);
    return {};
  }
  const bool octal = c >= '0' && c <= '7';
  const size_t width = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : octal ? 3 : 0;
  if (width == 0) {
    if (c == 'N') return syntax_error(line_, "\\N escapes are not supported");
    *out += '\\';  // the next character is read as usual
    return {};
  }
  if (!octal) advance(1);
  const std::string_view digits = rest().substr(0, width);
  uint32_t code = 0;
  size_t read = 0;
  for (; read < digits.size() && digit_value(digits[read]) < (octal ? 8 : 16); ++read) {
    code = code * (octal ? 8 : 16) + digit_value(digits[read]);
  }
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  if (read == 0 || (!octal && read != width) || code > 0x10ffff || surrogate) {
    return syntax_error(line_, "an escape is not a valid character");
  }
  tokenizer::append_utf8(code, out);
  advance(read);
  return {};
}

}  // namespace

Result<std::vector<Lexeme>> lex(std::string_view source) {
  if (!tokenizer::is_valid_utf8(source)) return syntax_error(1, "the source is not UTF-8");
  const std::string text = normalized(source);
  return Lexer(text).run();
}

Status syntax_error(uint32_t line, const char* format, ...) {
  va_list args;
  va_start(args, format);
  char text[256];
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return error(Code::kChatTemplate, "the chat template cannot be read: %s (line %u)", text, line);
}

}  // namespace sluice::jinja

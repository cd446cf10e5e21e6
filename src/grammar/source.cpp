// Decodes characters of a grammar's source.
#include "grammar/source.h"

#include <algorithm>

#include "base/surrogates.h"
#include "grammar/char_class.h"

namespace sluice::grammar {

Result<uint32_t> Source::next_char() {
  const uint8_t lead = static_cast<uint8_t>(peek());
  const int length = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  uint32_t c = length == 1 ? lead : lead & (0x7Fu >> length);
  bool good = length > 0 && lead < 0xF5 && at_ + static_cast<size_t>(length) <= text_.size();
  for (int i = 1; good && i < length; ++i) {
    const uint8_t byte = static_cast<uint8_t>(peek(static_cast<size_t>(i)));
    good = (byte & 0xC0) == 0x80;
    c = c << 6 | (byte & 0x3F);
  }
  const uint32_t least = length == 3 ? 0x800 : length == 4 ? 0x10000 : 0;
  if (!good || c < least || !is_scalar_value(c)) {
    return fail("invalid UTF-8");
  }
  skip(static_cast<size_t>(length));
  return c;
}

Result<uint32_t> Source::hex(int n) {
  uint32_t value = 0;
  for (int i = 0; i < n; ++i, skip()) {
    const char c = peek();
    const char low = static_cast<char>(c | 0x20);
    if (c >= '0' && c <= '9') {
      value = value << 4 | static_cast<uint32_t>(c - '0');
    } else if (low >= 'a' && low <= 'f') {
      value = value << 4 | static_cast<uint32_t>(low - 'a' + 10);
    } else {
      return fail("expected a hexadecimal digit");
    }
  }
  return value;
}

bool Source::number(uint32_t* out) {
  const size_t start = at_;
  uint64_t value = 0;
  for (; peek() >= '0' && peek() <= '9'; skip()) {
    value = std::min<uint64_t>(value * 10 + static_cast<uint64_t>(peek() - '0'), INT32_MAX);
  }
  *out = static_cast<uint32_t>(value);
  return at_ > start;
}

Status Source::fail_at(size_t position, const char* what) const {
  const std::string_view before = text_.substr(0, std::min(position, text_.size()));
  const size_t line = static_cast<size_t>(std::count(before.begin(), before.end(), '\n')) + 1;
  const size_t newline = before.rfind('\n');
  const std::string_view same_line =
      newline == std::string_view::npos ? before : before.substr(newline + 1);
  const auto begins = [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; };
  const auto column = std::count_if(same_line.begin(), same_line.end(), begins) + 1;
  return error(Code::kGrammarSyntax, "line %zu, column %lld: %s", line,
               static_cast<long long>(column), what);
}

}  // namespace sluice::grammar

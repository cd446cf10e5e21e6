// The word rules of the large families. Each function implements the published regular expression
// above it, and tries its alternatives in order. (?i) is implemented explicitly.
#include "tokenizer/scanners.h"

namespace sluice::tokenizer {

namespace {

enum class Case { kLower, kAny };

// Length in bytes of 's 't 're 've 'm 'll 'd at `pos`, 0 when there is none.
template <Case kCase>
size_t contraction(std::string_view text, size_t pos) {
  if (text[pos] != '\'') return 0;
  const auto letter = [&](size_t i) {
    if (pos + i >= text.size()) return '\0';
    const char c = text[pos + i];
    return kCase == Case::kAny && c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  };
  const char a = letter(1);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  const char b = letter(2);
  const bool two = (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l');
  return two ? 3 : 0;
}

bool is_lower_ascii(const Char& c) {
  return c.cp >= 'a' && c.cp <= 'z';
}
bool is_upper_ascii(const Char& c) {
  return c.cp >= 'A' && c.cp <= 'Z';
}

// The end of up to `most` numbers from `pos`, where the first one is.
size_t number_end(std::string_view text, size_t pos, size_t most) {
  for (size_t n = 0; n < most; ++n) {
    const Char c = char_at(text, pos);
    if (!c.is_number()) break;
    pos += c.bytes;
  }
  return pos;
}

constexpr size_t kUnlimited = SIZE_MAX;

// What may follow a run of punctuation as a part of it.
enum class Tail { kNone, kNewlines, kNewlinesSlash };

size_t tail_end(std::string_view text, size_t pos, Tail tail) {
  const auto belongs = [tail](char c) {
    return c == '\r' || c == '\n' || (c == '/' && tail == Tail::kNewlinesSlash);
  };
  while (tail != Tail::kNone && pos < text.size() && belongs(text[pos])) ++pos;
  return pos;
}

//  ?[^\s\p{L}\p{N}]+ and a tail; `marks` adds \p{M} to the excluded. 0 when it does not match.
size_t punctuation_end(std::string_view text, size_t pos, const Char& c, bool marks, Tail tail) {
  const auto holds = [marks](const Char& x) {
    return !x.is_space() && !x.is_letter() && !x.is_number() &&
           !(marks && x.cls == CharClass::kMark);
  };
  const size_t start = c.cp == ' ' ? pos + 1 : pos;
  const size_t end = run_end(text, start, holds);
  return end > start ? tail_end(text, end, tail) : 0;
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,kDigits}| ?[^\s\p{L}\p{N}]+[\r\n]*
// |\s*[\r\n]+|\s+(?!\S)|\s+           kMarks: [\p{L}\p{M}]+, and \p{M} is not punctuation
template <size_t kDigits, bool kMarks, Tail kTail>
Piece scan_like_llama3(std::string_view text, size_t pos) {
  if (const size_t n = contraction<Case::kAny>(text, pos)) return {pos + n};
  const auto in_word = [](const Char& x) {
    return x.is_letter() || (kMarks && x.cls == CharClass::kMark);
  };
  const Char c = char_at(text, pos);
  if (!c.is_newline() && !c.is_number()) {
    const size_t next = pos + c.bytes;
    const size_t end = run_end(text, next, in_word);
    if (in_word(c) || end > next) return {end};
  }
  if (c.is_number()) return {number_end(text, pos, kDigits)};
  if (const size_t end = punctuation_end(text, pos, c, kMarks, kTail)) return {end};
  return scan_space(text, pos, true);
}

// The end of a word of letters in the rules of tekken and gpt-4o, from `pos`: [^a-z]*[^A-Z]+, else
// [^a-z]+[^A-Z]*, all within \p{L}. The first alternative must end on a letter that is not A-Z, and
// backtracks to one.
size_t cased_word_end(std::string_view text, size_t pos) {
  size_t last_caseless = 0;  // after the last letter that is neither a-z nor A-Z
  const size_t upper =
      run_end(text, pos, [&](const Char& c) { return c.is_letter() && !is_lower_ascii(c); });
  const auto not_upper = [](const Char& c) { return c.is_letter() && !is_upper_ascii(c); };
  const size_t end = run_end(text, upper, not_upper);
  if (end > upper) return end;
  for (size_t at = pos; at < upper;) {
    const Char c = char_at(text, at);
    at += c.bytes;
    if (!is_upper_ascii(c)) last_caseless = at;
  }
  return last_caseless != 0 ? last_caseless : upper;
}

// [^\r\n\p{L}\p{N}]?<cased word><contraction>?|\p{N}{1,kDigits}| ?[^\s\p{L}\p{N}]+[\r\n/]*
// |\s*[\r\n]+|\s+(?!\S)|\s+
template <size_t kDigits, bool kContractions>
Piece scan_cased(std::string_view text, size_t pos) {
  const Char c = char_at(text, pos);
  if (!c.is_newline() && !c.is_number()) {
    const size_t start = c.is_letter() ? pos : pos + c.bytes;
    if (char_at(text, start).is_letter()) {
      const size_t end = cased_word_end(text, start);
      if (!kContractions || end >= text.size()) return {end};
      return {end + contraction<Case::kAny>(text, end)};
    }
  }
  if (c.is_number()) return {number_end(text, pos, kDigits)};
  if (const size_t end = punctuation_end(text, pos, c, false, Tail::kNewlinesSlash)) return {end};
  return scan_space(text, pos, true);
}

bool is_punctuation_or_symbol(const Char& c) {
  return c.cls == CharClass::kPunctuation || c.cls == CharClass::kSymbol;
}

}  // namespace

Piece scan_space(std::string_view text, size_t pos, bool newlines) {
  size_t end = pos;
  size_t last = pos;          // start of the last space character
  size_t behind_newline = 0;  // after the last line break
  for (;;) {
    const Char c = char_at(text, end);
    if (!c.is_space()) break;
    last = end;
    end += c.bytes;
    if (c.is_newline()) behind_newline = end;
  }
  if (end == pos) return {pos + char_at(text, pos).bytes, false};
  if (newlines && behind_newline != 0) return {behind_newline};
  if (end < text.size() && last > pos) return {last};
  return {end};
}

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
Piece scan_gpt2(std::string_view text, size_t pos) {
  if (const size_t n = contraction<Case::kLower>(text, pos)) return {pos + n};
  const Char c = char_at(text, pos);
  const size_t start = c.cp == ' ' ? pos + 1 : pos;
  const Char first = c.cp == ' ' ? char_at(text, start) : c;
  if (first.is_letter()) {
    return {run_end(text, start, [](const Char& x) { return x.is_letter(); })};
  }
  if (first.is_number()) return {number_end(text, start, kUnlimited)};
  if (const size_t end = punctuation_end(text, pos, c, false, Tail::kNone)) return {end};
  return scan_space(text, pos, false);
}

Piece scan_llama3(std::string_view text, size_t pos) {
  return scan_like_llama3<3, false, Tail::kNewlines>(text, pos);
}

Piece scan_qwen2(std::string_view text, size_t pos) {
  return scan_like_llama3<1, false, Tail::kNewlines>(text, pos);
}

Piece scan_qwen35(std::string_view text, size_t pos) {
  return scan_like_llama3<1, true, Tail::kNewlines>(text, pos);
}

Piece scan_minicpm5(std::string_view text, size_t pos) {
  return scan_like_llama3<kUnlimited, false, Tail::kNewlines>(text, pos);
}

Piece scan_seed_coder(std::string_view text, size_t pos) {
  return scan_like_llama3<1, false, Tail::kNone>(text, pos);
}

Piece scan_tekken(std::string_view text, size_t pos) {
  return scan_cased<1, false>(text, pos);
}

Piece scan_gpt4o(std::string_view text, size_t pos) {
  return scan_cased<3, true>(text, pos);
}

// [ASCII punctuation][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*
// |\s*[\r\n]+|\s+(?!\S)|\s+
Piece scan_deepseek_v3(std::string_view text, size_t pos) {
  const Char c = char_at(text, pos);
  const size_t next = pos + c.bytes;
  if (c.cp < 0x80 && is_punctuation_or_symbol(c)) {
    const size_t end =
        run_end(text, next, [](const Char& x) { return is_lower_ascii(x) || is_upper_ascii(x); });
    if (end > next) return {end};
  }
  const auto in_word = [](const Char& x) { return x.is_letter() || x.cls == CharClass::kMark; };
  if (!c.is_newline() && !is_punctuation_or_symbol(c)) {
    const size_t end = run_end(text, next, in_word);
    if (in_word(c) || end > next) return {end};
  }
  const size_t start = c.cp == ' ' ? next : pos;
  const size_t end = run_end(text, start, is_punctuation_or_symbol);
  if (end > start) return {tail_end(text, end, Tail::kNewlines)};
  return scan_space(text, pos, true);
}

}  // namespace sluice::tokenizer

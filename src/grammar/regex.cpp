// Parses regular expressions. Anchors become bytes that do not occur in UTF-8 (kStart, kEnd). A
// text matches if it does with some kStart bytes before it and some kEnd bytes after it.
#include "grammar/regex.h"

#include <cstdio>
#include <string>
#include <vector>

#include "base/surrogates.h"
#include "grammar/class_reader.h"
#include "grammar/front.h"
#include "grammar/source.h"

namespace sluice::grammar {
namespace {

constexpr uint8_t kStart = 0xFE, kEnd = 0xFF;

CharClass digits() {
  return {{'0', '9'}};
}
CharClass words() {
  return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
}
CharClass spaces() {
  return {{9, 13},          {32, 32},         {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
          {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
}
CharClass line_ends() {
  return {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
}

class Regex {
 public:
  Regex(std::string_view text, Builder* builder) : in_(text), builder_(*builder) {}

  Result<Expr> parse() {
    const Result<Expr> all = alternatives(0);
    if (!all.ok()) return all;
    if (!in_.at_end()) return in_.fail("unmatched \")\"");
    return all;
  }
  [[nodiscard]] bool anchored() const { return starts_ + ends_ > 0; }

 private:
  Result<Expr> alternatives(int depth) {
    std::vector<Expr> parts;
    do {
      const Result<Expr> part = sequence(depth);
      if (!part.ok()) return part;
      parts.push_back(*part);
    } while (in_.take("|"));
    return builder_.alt(parts);
  }

  Result<Expr> sequence(int depth) {
    std::vector<Expr> parts;
    bool ended = false;
    while (!in_.at_end() && in_.peek() != '|' && in_.peek() != ')') {
      if (builder_.full()) break;
      const size_t start = in_.position(), starts = starts_, ends = ends_;
      Result<Expr> part = atom(depth);
      if (!part.ok()) return part;
      const size_t behind = in_.position();
      part = quantified(*part);
      if (!part.ok()) return part;
      const bool again = in_.position() > behind && ends_ > ends;
      // Would match an empty text, which anchor() misses.
      if (starts_ > starts && (ended || again)) {
        return in_.fail_at(start, "\"^\" after \"$\" is not supported");
      }
      ended |= ends_ > ends;
      parts.push_back(*part);
    }
    return builder_.seq(parts);
  }

  Result<Expr> quantified(Expr body) {
    const size_t start = in_.position();
    uint32_t least = 0, most = Builder::kUnbounded;
    if (in_.take("+")) {
      least = 1;
    } else if (in_.take("?")) {
      most = 1;
    } else if (in_.take("{")) {
      if (!in_.number(&least)) return in_.fail("expected a number");
      most = least;
      if (in_.take(",") && !in_.number(&most)) most = Builder::kUnbounded;
      if (!in_.take("}")) return in_.fail("expected \"}\"");
      if (most < least) return in_.fail_at(start, "the bounds of this quantifier are reversed");
      if (least > kMaxRepeat || (most != Builder::kUnbounded && most > kMaxRepeat)) {
        return Status(Code::kGrammarTooLarge,
                      in_.fail_at(start, "this quantifier repeats too many times").message());
      }
    } else if (!in_.take("*")) {
      return body;
    }
    static_cast<void>(in_.take("?"));  // lazy quantifiers match the same texts
    const char c = in_.peek();
    if (c == '*' || c == '+' || c == '?' || c == '{') {
      return in_.fail("a quantifier of a quantifier is not supported");
    }
    return builder_.repeat(body, least, most);
  }

  Result<Expr> atom(int depth) {
    const char c = in_.peek();
    switch (c) {
      case '^':
      case '$':
        in_.skip();
        ++(c == '^' ? starts_ : ends_);
        return builder_.bytes(std::string(1, static_cast<char>(c == '^' ? kStart : kEnd)));
      case '.':
        in_.skip();
        return builder_.chars(line_ends().inverse());
      case '(':
        return group(depth);
      case '[':
        return char_class();
      case '*':
      case '+':
      case '?':
      case '{':
        return in_.fail("there is nothing before this quantifier");
      default:
        break;
    }
    CharClass set;
    SLUICE_RETURN_IF_ERROR(c == '\\' ? escape(false, &set) : plain(&set));
    return builder_.chars(set);
  }

  Result<Expr> group(int depth) {
    const size_t start = in_.position();
    in_.skip();
    if (depth >= kMaxNesting) return in_.fail("groups are nested too deeply");
    if (in_.take("?")) {
      const char c = in_.peek(), d = in_.peek(1);
      if (c == '=' || c == '!') {
        return in_.fail_at(start, "look-ahead, (?= or (?!, is not supported");
      }
      if (c == '<' && (d == '=' || d == '!')) {
        return in_.fail_at(start, "look-behind, (?<= or (?<!, is not supported");
      }
      if (c == '<') {
        while (in_.peek() != '>' && !in_.at_end()) in_.skip();
        if (!in_.take(">")) return in_.fail_at(start, "the name of this group is not closed");
      } else if (!in_.take(":")) {
        return in_.fail_at(start, "flags and this kind of (? group are not supported");
      }
    }
    const Result<Expr> inner = alternatives(depth + 1);
    if (!inner.ok()) return inner;
    if (!in_.take(")")) return in_.fail_at(start, "this group is not closed");
    return inner;
  }

  Status plain(CharClass* out) {
    const Result<uint32_t> c = in_.next_char();
    if (!c.ok()) return c.status();
    out->add(*c, *c);
    return {};
  }

  Result<uint32_t> unicode_escape() {
    const size_t start = in_.position();
    uint32_t value = 0;
    if (in_.take("{")) {
      int n = 0;
      while (in_.peek() != '}') {
        const Result<uint32_t> digit = in_.hex(1);
        if (!digit.ok()) return digit;
        value = value << 4 | *digit;
        if (++n > 6) break;
      }
      if (!in_.take("}")) return in_.fail("expected \"}\"");
    } else {
      const Result<uint32_t> high = in_.hex(4);
      if (!high.ok()) return high;
      value = *high;
      if (is_high_surrogate(value) && in_.take("\\u")) {
        const Result<uint32_t> low = in_.hex(4);
        if (!low.ok()) return low;
        if (!is_low_surrogate(*low)) return in_.fail_at(start, "unpaired surrogate");
        value = joined_surrogates(value, *low);
      }
    }
    if (!is_scalar_value(value)) {
      return in_.fail_at(start, "this is not a Unicode character");
    }
    return value;
  }

  Status escape(bool in_class, CharClass* out) {
    const size_t start = in_.position();
    in_.skip();
    const char c = in_.peek();
    in_.skip();
    const auto one = [out](uint32_t value) {
      out->add(value, value);
      return Status();
    };
    switch (c) {
      case 'd':
        return out->add(digits()), Status();
      case 'D':
        return out->add(digits().inverse()), Status();
      case 'w':
        return out->add(words()), Status();
      case 'W':
        return out->add(words().inverse()), Status();
      case 's':
        return out->add(spaces()), Status();
      case 'S':
        return out->add(spaces().inverse()), Status();
      case 't':
        return one('\t');
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 'v':
        return one('\v');
      case 'f':
        return one('\f');
      case '0':
        if (in_.peek() >= '0' && in_.peek() <= '9') break;
        return one(0);
      case 'b':
        if (in_class) return one('\b');
        return in_.fail_at(start, "the word boundary \\b is not supported");
      case 'B':
        return in_.fail_at(start, "the word boundary \\B is not supported");
      case 'p':
      case 'P':
        return in_.fail_at(start, "the Unicode property \\p is not supported");
      case 'k':
        return in_.fail_at(start, "the back-reference \\k is not supported");
      case 'x':
      case 'u': {
        const Result<uint32_t> value = c == 'x' ? in_.hex(2) : unicode_escape();
        return value.ok() ? one(*value) : value.status();
      }
      case 'c':
        if ((in_.peek() | 0x20) < 'a' || (in_.peek() | 0x20) > 'z') break;
        in_.skip();
        return one(static_cast<uint32_t>(in_.since(start).back()) & 31);
      default:
        if (c >= '1' && c <= '9') {
          return in_.fail_at(start, "back-references such as \\1 are not supported");
        }
        if (c > ' ' && c < 0x7F && !((c | 0x20) >= 'a' && (c | 0x20) <= 'z')) {
          return one(static_cast<uint32_t>(c));
        }
    }
    return in_.fail_at(start, "unknown escape");
  }

  Result<Expr> char_class() {
    const Result<CharClass> set = read_char_class(in_, [this](CharClass* out) {
      return in_.peek() == '\\' ? escape(true, out) : plain(out);
    });
    if (!set.ok()) return set.status();
    return builder_.chars(*set);
  }

  Source in_;
  Builder& builder_;
  size_t starts_ = 0, ends_ = 0;  // number of anchors
};

}  // namespace

Result<Expr> regex_expression(std::string_view pattern, Builder* builder, bool* anchored) {
  Regex regex(pattern, builder);
  Result<Expr> parsed = regex.parse();
  *anchored = regex.anchored();
  return parsed;
}

Result<Dfa> regex_automaton(std::string_view pattern, bool search) {
  Builder b;
  const uint32_t root = b.new_rule();
  bool anchored = false;
  const Result<Expr> inner = regex_expression(pattern, &b, &anchored);
  if (!inner.ok()) return inner.status();
  const auto around = [&](uint8_t mark) {
    const Expr marks = b.bytes(std::string(1, static_cast<char>(mark)));
    const Expr each = search ? b.alt({b.chars(CharClass::all()), marks}) : marks;
    return b.repeat(each, 0, Builder::kUnbounded);
  };
  b.define(root, b.seq({around(kStart), *inner, around(kEnd)}));
  const Result<std::shared_ptr<const Grammar>> grammar = b.build();
  if (!grammar.ok()) return grammar.status();
  Dfa out = Dfa::of(**grammar);
  if (out.too_large()) {
    return error(Code::kGrammarTooLarge, "the regular expression needs too many states");
  }
  out.anchor(kStart, kEnd);
  return out;
}

Result<std::shared_ptr<const Grammar>> compile_regex(std::string_view text) {
  Builder b;
  const uint32_t root = b.new_rule();
  bool anchored = false;
  Result<Expr> whole = regex_expression(text, &b, &anchored);
  if (!whole.ok()) return whole.status();
  if (anchored) {
    const Result<Dfa> automaton = regex_automaton(text, false);
    if (!automaton.ok()) return automaton.status();
    whole = b.automaton(*automaton, false);
  }
  b.define(root, *whole);
  return b.build();
}

}  // namespace sluice::grammar

// Converts shapes of scalars and arrays to expressions.
#include <algorithm>
#include <bit>
#include <map>

#include "grammar/schema.h"

namespace sluice::grammar {
namespace {

constexpr size_t kMaxCells = 4000;  // states of an array with counted items

Conjunction sorted(Conjunction all) {
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

}  // namespace

// A value that satisfies all terms. It becomes a rule, which is defined later.
Expr SchemaCompiler::value(const Conjunction& terms) {
  Conjunction all;
  for (const Term t : terms) {
    const bool trivial = is(t / 2, JsonType::kBoolean);
    const bool anything = trivial && document_[t / 2].truth != ((t & 1) != 0);
    if (trivial && !anything) return Builder::kNever;
    if (!anything) all.push_back(t);
  }
  all = sorted(std::move(all));
  const auto [at, is_new] = rules_.try_emplace(all, 0);
  if (is_new) {
    at->second = builder_.new_rule();
    open_.push_back({all, at->second});
  }
  return builder_.call(at->second);
}

void SchemaCompiler::emit_rule(const Conjunction& all, uint32_t rule) {
  const Shapes shapes = shapes_of(all);
  std::vector<Expr> parts;
  for (const Shape& s : shapes) {
    if (failed()) return;
    parts.push_back(emit_shape(s));
  }
  builder_.define(rule, builder_.alt(parts));
}

Expr SchemaCompiler::emit_shape(const Shape& s) {
  if (s.values) return emit_values(s);
  uint8_t types = s.types;
  if (s.counted_items && (types & kArrayBit) != 0) types = kArrayBit;
  for (const uint32_t v : s.excluded) {
    const uint8_t bit = type_bit(v);
    if (bit <= kFalseBit) types &= static_cast<uint8_t>(~bit);
    if (bit >= kArrayBit && (types & bit) != 0) {
      refuse(v, "excluding an array or object is not supported");
    }
  }
  std::vector<Expr> parts;
  if ((types & kNullBit) != 0) parts.push_back(builder_.bytes("null"));
  if ((types & kTrueBit) != 0) parts.push_back(builder_.bytes("true"));
  if ((types & kFalseBit) != 0) parts.push_back(builder_.bytes("false"));
  if ((types & kNumberBit) != 0) parts.push_back(emit_number(s));
  if ((types & kStringBit) != 0) parts.push_back(emit_string(s));
  if ((types & kArrayBit) != 0) parts.push_back(emit_array(s));
  if ((types & kObjectBit) != 0) parts.push_back(emit_object(s));
  return builder_.alt(parts);
}

// --- enum and const

Expr SchemaCompiler::emit_values(const Shape& s) {
  std::vector<std::string> scalars;
  std::vector<Expr> parts;
  for (const uint32_t v : *s.values) {
    if (!fits(s, v)) continue;
    const JsonValue& value = document_[v];
    switch (value.type) {
      case JsonType::kNull:
        scalars.push_back("null");
        break;
      case JsonType::kBoolean:
        scalars.push_back(value.truth ? "true" : "false");
        break;
      case JsonType::kString:
        scalars.push_back(quoted(value.text));
        break;
      case JsonType::kNumber: {
        scalars.push_back(value.text);
        const std::optional<Decimal> d = Decimal::parse(value.text);
        const std::optional<std::string> text = d ? plain(*d) : std::nullopt;
        if (text && text->size() <= 2 * kMaxDigits) scalars.push_back(*text);
        break;
      }
      case JsonType::kArray:
      case JsonType::kObject:
        parts.push_back(emit_value(v));
        break;
    }
  }
  parts.push_back(builder_.choice(std::move(scalars)));
  return builder_.alt(parts);
}

Expr SchemaCompiler::emit_value(uint32_t at) {
  const JsonValue& v = document_[at];
  if (v.type != JsonType::kArray && v.type != JsonType::kObject) {
    Shape s;
    s.values = {at};
    return emit_values(s);
  }
  const bool object = v.type == JsonType::kObject;
  std::vector<Expr> parts = {builder_.bytes(object ? "{" : "["), space()};
  for (size_t i = 0; i < v.children.size(); ++i) {
    const uint32_t child = v.children[i];
    if (i > 0) parts.push_back(comma());
    if (object) {
      parts.push_back(builder_.bytes(quoted(document_[child].key)));
      parts.insert(parts.end(), {space(), builder_.bytes(":"), space()});
    }
    parts.push_back(emit_value(child));
    parts.push_back(space());
  }
  parts.push_back(builder_.bytes(object ? "}" : "]"));
  return builder_.seq(parts);
}

// --- scalars

Expr SchemaCompiler::emit_number(const Shape& s) {
  const bool plain_only = !s.bounds.empty() || !s.divisors.empty() || s.broken ||
                          std::any_of(s.excluded.begin(), s.excluded.end(),
                                      [&](uint32_t v) { return type_bit(v) == kNumberBit; });
  if (!plain_only) {
    const Expr digit = builder_.chars({{'0', '9'}}), first = builder_.chars({{'1', '9'}});
    const Expr minus = builder_.maybe(builder_.bytes("-")), zero = builder_.bytes("0");
    const Expr digits = builder_.seq({first, builder_.repeat(digit, 0, kMaxDigits - 1)});
    if (s.whole) return builder_.alt({zero, builder_.seq({minus, digits})});
    const Expr decimals =
        builder_.seq({builder_.bytes("."), builder_.repeat(digit, 1, kMaxDecimals)});
    const Expr sign = builder_.maybe(builder_.chars({{'+', '+'}, {'-', '-'}}));
    const Expr power = builder_.seq(
        {builder_.chars({{'E', 'E'}, {'e', 'e'}}), sign, builder_.repeat(digit, 1, 2)});
    return builder_.seq(
        {minus, builder_.alt({zero, digits}), builder_.maybe(decimals), builder_.maybe(power)});
  }
  Dfa language = numbers(s.whole);
  const auto narrow = [&](const Dfa& other, bool negated, uint32_t at) {
    language = Dfa::combine(language, other, negated ? Dfa::How::kOnlyFirst : Dfa::How::kBoth);
    if (language.too_large() && at != kNoValue) refuse(at, "this needs too many states");
    if (language.too_large())
      fail(error(Code::kGrammarTooLarge, "the constraints of a number need too many states"));
  };
  for (const Bound& b : s.bounds) {
    narrow(numbers_beyond(b.value, b.below, b.inclusive), false, kNoValue);
  }
  const Decimal one{false, "1", 1};
  if (s.broken) narrow(multiples(one), true, kNoValue);
  for (const Divisor& d : s.divisors) narrow(multiples(d.value), d.negated, d.at);
  for (const uint32_t v : s.excluded) {
    if (type_bit(v) != kNumberBit) continue;
    const std::optional<Decimal> d = Decimal::parse(document_[v].text);
    if (!d) continue;
    narrow(Dfa::combine(numbers_beyond(*d, true, true), numbers_beyond(*d, false, true),
                        Dfa::How::kBoth),
           true, v);
  }
  return failed() ? Builder::kNever : builder_.automaton(language, false);
}

Expr SchemaCompiler::space() {
  if (options_.compact) return Builder::kEmpty;
  if (options_.one_space) return builder_.maybe(builder_.bytes(" "));
  if (space_rule_ == UINT32_MAX) {
    space_rule_ = builder_.new_rule();
    const Expr one = builder_.chars({{'\t', '\n'}, {'\r', '\r'}, {' ', ' '}});
    builder_.define(space_rule_, builder_.repeat(one, 0, kMaxWhitespace));
  }
  return builder_.call(space_rule_);
}

Expr SchemaCompiler::comma() {
  return builder_.seq({builder_.bytes(","), space()});
}

// One character of a JSON string, in any spelling. Unpaired surrogates are not allowed.
Expr SchemaCompiler::string_char() {
  if (char_rule_ == UINT32_MAX) {
    char_rule_ = builder_.new_rule();
    const auto hex = [this](std::string_view from, std::string_view to) {
      CharClass set;
      for (size_t i = 0; i < from.size(); ++i) {
        set.add(static_cast<uint8_t>(from[i]), static_cast<uint8_t>(to[i]));
      }
      return builder_.chars(set);
    };
    const Expr any = hex("0Aa", "9Ff"), low = hex("0", "7"), d = hex("Dd", "Dd");
    const Expr rest = hex("0ABCEFabcef", "9ABCEFabcef");
    const Expr high_half = builder_.seq({d, hex("89ABab", "89ABab"), any, any});
    const Expr low_half = builder_.seq({d, hex("CDEFcdef", "CDEFcdef"), any, any});
    const Expr code =
        builder_.alt({builder_.seq({rest, any, any, any}), builder_.seq({d, low, any, any}),
                      builder_.seq({high_half, builder_.bytes("\\u"), low_half})});
    CharClass short_form;
    for (const char c : std::string_view("\"\\/bfnrt")) {
      short_form.add(static_cast<uint8_t>(c), static_cast<uint8_t>(c));
    }
    const CharClass plain_char = CharClass({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}).inverse();
    builder_.define(
        char_rule_,
        builder_.alt({builder_.chars(plain_char),
                      builder_.seq({builder_.bytes("\\"),
                                    builder_.alt({builder_.chars(short_form),
                                                  builder_.seq({builder_.bytes("u"), code})})})}));
  }
  return builder_.call(char_rule_);
}

Expr SchemaCompiler::any_string() {
  if (string_rule_ == UINT32_MAX) {
    string_rule_ = builder_.new_rule();
    const Expr quote = builder_.bytes("\"");
    const Expr chars = builder_.repeat(string_char(), 0, Builder::kUnbounded);
    builder_.define(string_rule_, builder_.seq({quote, chars, quote}));
  }
  return builder_.call(string_rule_);
}

// The allowed strings; nullopt if only their length is limited.
std::optional<Dfa> SchemaShapes::string_language(const Shape& s) {
  std::optional<Dfa> out;
  for (const Language& l : s.languages) narrow(&out, automata_[l.automaton], l.negated);
  for (const uint32_t v : s.excluded) {
    if (type_bit(v) == kStringBit) narrow(&out, Dfa::literal(document_[v].text), true);
  }
  if (out && (s.min_chars > 0 || s.max_chars != UINT32_MAX)) {
    narrow(&out, Dfa::lengths(s.min_chars, s.max_chars), false);
  }
  if (out && out->too_large()) {
    fail(error(Code::kGrammarTooLarge, "the patterns and length of a string need too many states"));
  }
  return out;
}

Expr SchemaCompiler::emit_string(const Shape& s) {
  if (s.min_chars > s.max_chars) return Builder::kNever;
  const Expr quote = builder_.bytes("\"");
  if (const std::optional<Dfa> language = string_language(s)) {
    if (failed()) return Builder::kNever;
    return builder_.seq({quote, builder_.automaton(*language, true), quote});
  }
  if (s.min_chars == 0 && s.max_chars == UINT32_MAX) return any_string();
  const uint32_t most = s.max_chars == UINT32_MAX ? Builder::kUnbounded : s.max_chars;
  return builder_.seq({quote, builder_.repeat(string_char(), s.min_chars, most), quote});
}

// --- arrays

Conjunction SchemaShapes::item(const Shape& s, uint32_t index) const {
  Conjunction all;
  for (const ItemPart& part : s.items) {
    const Term t = index < part.prefix.size() ? part.prefix[index] : part.rest;
    if (t != kNoTerm) all.push_back(t);
  }
  return sorted(std::move(all));
}

Expr SchemaCompiler::emit_array(const Shape& s) {
  const bool unique = s.unique_at != kNoValue && s.max_items > 1;
  const Expr open = builder_.seq({builder_.bytes("["), space()}), close = builder_.bytes("]");
  if (unique) return builder_.seq({open, emit_unique(s), close});
  if (!s.contains.empty()) return builder_.seq({open, emit_counted(s), close});
  uint32_t prefix = 0;
  for (const ItemPart& part : s.items) {
    prefix = std::max(prefix, static_cast<uint32_t>(part.prefix.size()));
  }
  // Built from the end: what may follow after i items.
  const auto one = [&](uint32_t i) {
    return builder_.seq({i > 0 ? comma() : Builder::kEmpty, value(item(s, i)), space()});
  };
  const uint32_t most = s.max_items, least = s.min_items;
  if (least > most) return Builder::kNever;
  Expr tail = Builder::kEmpty;
  uint32_t fixed = std::min(std::max(prefix, 1u), most);
  if (most > fixed) {
    const Expr more = builder_.seq({comma(), value(item(s, std::max(prefix, 1u))), space()});
    tail = builder_.repeat(more, least > fixed ? least - fixed : 0,
                           most == UINT32_MAX ? Builder::kUnbounded : most - fixed);
  }
  for (uint32_t i = fixed; i > 0; --i) {
    tail = builder_.seq({one(i - 1), tail});
    if (i - 1 >= least) tail = builder_.maybe(tail);
  }
  return builder_.seq({open, tail, close});
}

// Pairwise disjoint languages of items: the values of an enum, or strings by their first character.
std::vector<Expr> SchemaCompiler::kinds(const Shape& s) {
  constexpr size_t kMax = 8;
  std::vector<Expr> out;
  const Shapes shapes = shapes_of(item(s, 0));
  if (shapes.size() != 1) return out;
  const Shape& one = shapes[0];
  if (one.values) {
    std::vector<uint32_t> distinct;
    for (const uint32_t v : *one.values) {
      const auto same = [&](uint32_t w) { return document_.equal(v, w); };
      if (fits(one, v) && std::none_of(distinct.begin(), distinct.end(), same))
        distinct.push_back(v);
    }
    for (size_t i = 0; i < distinct.size() && distinct.size() <= kMax; ++i) {
      out.push_back(emit_value(distinct[i]));
    }
    return out;
  }
  if (one.types != kStringBit || !one.languages.empty() || !one.excluded.empty()) return out;
  for (uint32_t kind = 0; kind < kMax; ++kind) {
    CharClass first;
    for (uint32_t c = 0x20 + kind; c < 0x7F; c += kMax) {
      if (c != '"' && c != '\\') first.add(c, c);
    }
    if (kind == 0) first.add(0xA0, kMaxChar);
    const uint32_t most = one.max_chars == UINT32_MAX ? Builder::kUnbounded : one.max_chars - 1;
    if (one.max_chars == 0) continue;
    const Expr rest = builder_.repeat(string_char(), std::max(one.min_chars, 1u) - 1, most);
    const Expr quote = builder_.bytes("\"");
    out.push_back(builder_.seq({quote, builder_.chars(first), rest, quote}));
  }
  return out;
}

// Ensures distinct items by using each kind (see kinds()) at most once. No duplicates are possible,
// but some valid lists are rejected, such as strings with the same first character.
Expr SchemaCompiler::emit_unique(const Shape& s) {
  std::vector<Expr> bodies;
  const bool alike = std::all_of(s.items.begin(), s.items.end(),
                                 [](const ItemPart& part) { return part.prefix.empty(); });
  if (alike && s.contains.empty()) bodies = kinds(s);
  if (bodies.empty() || bodies.size() < s.min_items) {
    refuse(s.unique_at,
           "uniqueItems is supported for up to 8 strings without patterns, or values of an enum");
    return Builder::kNever;
  }
  std::vector<Expr> items;
  for (const Expr body : bodies) {
    const uint32_t rule = builder_.new_rule();
    builder_.define(rule, builder_.seq({body, space()}));
    items.push_back(builder_.call(rule));
  }
  const uint32_t sets = 1u << items.size();
  std::vector<uint32_t> rules;  // by set of kinds used
  for (uint32_t i = 0; i < sets; ++i) rules.push_back(builder_.new_rule());
  for (uint32_t set = 0; set < sets && !failed(); ++set) {
    const uint32_t n = static_cast<uint32_t>(std::popcount(set));
    std::vector<Expr> ways;
    if (n >= s.min_items) ways.push_back(Builder::kEmpty);
    for (size_t k = 0; k < items.size() && n < s.max_items; ++k) {
      if ((set >> k & 1) != 0) continue;
      const Expr next = builder_.call(rules[set | 1u << k]);
      ways.push_back(builder_.seq({n > 0 ? comma() : Builder::kEmpty, items[k], next}));
    }
    builder_.define(rules[set], builder_.alt(ways));
  }
  return builder_.call(rules[0]);
}

// Items that `contains` counts: a rule for each position and each count so far.
Expr SchemaCompiler::emit_counted(const Shape& s) {
  if (s.contains.size() > 2) {
    refuse(s.contains[2].term / 2, "more than two contains on one array are not supported");
    return Builder::kNever;
  }
  uint32_t last = s.min_items;  // positions from here on are equivalent
  if (s.max_items != UINT32_MAX) last = std::max(last, s.max_items);
  for (const ItemPart& part : s.items) {
    last = std::max(last, static_cast<uint32_t>(part.prefix.size()));
  }
  last = std::max(last, 1u);
  uint32_t caps[2] = {0, 0};  // counts from here on are equivalent
  for (size_t i = 0; i < s.contains.size(); ++i) {
    const Contains& c = s.contains[i];
    caps[i] = c.most == UINT32_MAX ? c.least : std::max(c.most, c.least);
  }
  const uint64_t cells =
      (static_cast<uint64_t>(last) + 1) * (uint64_t{caps[0]} + 1) * (uint64_t{caps[1]} + 1);
  if (cells > kMaxCells) {
    refuse(s.contains[0].term / 2, "the counts of contains are too large");
    return Builder::kNever;
  }
  const auto cell = [&](uint32_t i, uint32_t a, uint32_t b) {
    return (i * (caps[0] + 1) + a) * (caps[1] + 1) + b;
  };
  std::vector<uint32_t> rules;
  for (uint64_t i = 0; i < cells; ++i) rules.push_back(builder_.new_rule());
  if (failed()) return Builder::kNever;
  for (uint32_t i = 0; i <= last; ++i) {
    for (uint32_t a = 0; a <= caps[0]; ++a) {
      for (uint32_t b = 0; b <= caps[1]; ++b) {
        const uint32_t counts[2] = {a, b};
        std::vector<Expr> ways;
        bool done = i >= s.min_items && i <= s.max_items;
        for (size_t k = 0; k < s.contains.size(); ++k) {
          done &= counts[k] >= s.contains[k].least && counts[k] <= s.contains[k].most;
        }
        if (done) ways.push_back(Builder::kEmpty);
        const uint32_t kinds = 1u << s.contains.size();
        for (uint32_t kind = 0; kind < kinds && (i < last || s.max_items == UINT32_MAX); ++kind) {
          Conjunction all = item(s, i);
          uint32_t next[2] = {a, b};
          bool good = true;
          for (size_t k = 0; k < s.contains.size(); ++k) {
            const Contains& c = s.contains[k];
            const bool counted = (kind >> k & 1) != 0;
            if (counted)
              all.push_back(c.term);
            else if (c.most != UINT32_MAX)
              all.push_back(c.term ^ 1);  // must not match
            if (counted && c.most != UINT32_MAX && counts[k] == c.most) good = false;
            if (counted) next[k] = std::min(counts[k] + 1, caps[k]);
          }
          if (!good) continue;
          const Expr one = value(sorted(std::move(all)));
          const Expr rest = builder_.call(rules[cell(std::min(i + 1, last), next[0], next[1])]);
          ways.push_back(builder_.seq({i > 0 ? comma() : Builder::kEmpty, one, space(), rest}));
        }
        builder_.define(rules[cell(i, a, b)], builder_.alt(ways));
      }
    }
  }
  return builder_.call(rules[0]);
}

}  // namespace sluice::grammar

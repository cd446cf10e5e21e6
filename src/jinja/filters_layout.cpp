// Filters that lay out text for people: wordwrap, which follows Python's textwrap, filesizeformat
// and xmlattr.
#include <algorithm>
#include <cmath>

#include "jinja/interpreter.h"
#include "jinja/numbers.h"
#include "tokenizer/unicode.h"

namespace sluice::jinja {
namespace {

using tokenizer::CharClass;

// A run of characters of a line: a word, a part of one, or white space.
struct Chunk {
  size_t begin, end;
};

struct WrapStyle {
  size_t width;
  bool break_words, break_hyphens;
};

// Wraps one line. Positions are characters.
class LineWrapper {
 public:
  LineWrapper(const Text& line, const WrapStyle& style) : line_(line), style_(style) {
    const std::string_view bytes = line.view();
    for (size_t at = 0, n = 0; at < bytes.size(); at += n) {
      characters_.push_back(code_point(bytes, at, &n));
      offsets_.push_back(at);
    }
    offsets_.push_back(bytes.size());
  }

  [[nodiscard]] std::vector<Text> wrap() {
    std::vector<Chunk> chunks = split();
    std::vector<Text> out;
    for (size_t next = 0; next < chunks.size();) {
      if (!out.empty() && is_blank(chunks[next]) && ++next == chunks.size()) break;
      const size_t begin = chunks[next].begin;
      size_t end = begin, last = begin;  // `last`: where the line's last chunk begins
      while (next < chunks.size() && chunks[next].end - begin <= style_.width) {
        last = chunks[next].begin;
        end = chunks[next++].end;
      }
      if (next < chunks.size() && chunks[next].end - chunks[next].begin > style_.width) {
        const size_t cut = cut_of(chunks[next], begin);
        // Python's textwrap keeps white space before a word that it cuts, even at its first letter.
        if (style_.break_words) last = chunks[next].begin;
        end = std::max(end, cut);
        chunks[next].begin = cut;
        if (cut == chunks[next].end) ++next;
      }
      if (end > last && is_blank({last, end})) end = last;
      if (end > begin) out.push_back(line_.slice(offsets_[begin], offsets_[end]));
    }
    return out;
  }

 private:
  [[nodiscard]] uint32_t at(size_t i) const { return i < characters_.size() ? characters_[i] : 0; }
  [[nodiscard]] bool is_break(size_t i) const {
    const uint32_t cp = at(i);
    return i < characters_.size() && (cp == ' ' || (cp >= '\t' && cp <= '\r'));
  }
  [[nodiscard]] bool is_letter(size_t i) const {
    return at(i) == '_' || tokenizer::char_class(at(i)) == CharClass::kLetter;
  }
  [[nodiscard]] bool is_word(size_t i) const {
    return is_letter(i) || tokenizer::char_class(at(i)) == CharClass::kNumber;
  }
  // A character of a word, or punctuation after one.
  [[nodiscard]] bool ends_word(size_t i) const {
    return is_word(i) ||
           (at(i) > 0 && at(i) < 0x80 &&
            std::string_view("!\"'&.,?").find(static_cast<char>(at(i))) != std::string_view::npos);
  }
  [[nodiscard]] bool is_blank(const Chunk& chunk) const {
    return std::all_of(characters_.begin() + static_cast<ptrdiff_t>(chunk.begin),
                       characters_.begin() + static_cast<ptrdiff_t>(chunk.end), is_space);
  }

  // The end of the dash of two or more hyphens at `i` that a word follows; `i` if there is none.
  [[nodiscard]] size_t dash_end(size_t i) const {
    size_t end = i;
    while (at(end) == '-') ++end;
    return end - i >= 2 && is_word(end) ? end : i;
  }
  // Whether a line may break after the hyphen at `i`: two letters stand on either side, and one
  // other hyphen may be between them.
  [[nodiscard]] bool breaks_after_hyphen(size_t i) const {
    if (at(i) != '-' || i < 2) return false;
    const bool before =
        is_letter(i - 1) && (is_letter(i - 2) || (i >= 3 && at(i - 2) == '-' && is_letter(i - 3)));
    return before && is_letter(i + 1) && is_letter(at(i + 2) == '-' ? i + 3 : i + 2);
  }

  [[nodiscard]] size_t word_end(size_t begin) const {
    const size_t n = characters_.size();
    if (!style_.break_hyphens) {
      size_t end = begin;
      while (end < n && !is_break(end)) ++end;
      return end;
    }
    if (begin > 0 && ends_word(begin - 1) && dash_end(begin) > begin) return dash_end(begin);
    for (size_t end = begin + 1; end < n; ++end) {
      if (breaks_after_hyphen(end)) return end + 1;
      if (is_break(end) || (ends_word(end - 1) && dash_end(end) > end)) return end;
    }
    return n;
  }

  [[nodiscard]] std::vector<Chunk> split() const {
    std::vector<Chunk> out;
    for (size_t begin = 0, end = 0; begin < characters_.size(); begin = end) {
      while (is_break(end)) ++end;
      if (end == begin) end = word_end(begin);
      out.push_back({begin, end});
    }
    return out;
  }

  // Where a chunk that is wider than a line is cut, for the line that begins at `begin`.
  [[nodiscard]] size_t cut_of(const Chunk& chunk, size_t begin) const {
    const size_t room = style_.width - (chunk.begin - begin);
    if (!style_.break_words) return chunk.begin == begin ? chunk.end : chunk.begin;
    if (!style_.break_hyphens) return chunk.begin + room;
    bool other = false;  // a character before the hyphen is not one
    size_t cut = chunk.begin + room;
    for (size_t i = chunk.begin; i < chunk.begin + room; ++i) {
      if (at(i) == '-' && other) cut = i + 1;
      other = other || at(i) != '-';
    }
    return cut;
  }

  const Text& line_;
  const WrapStyle style_;
  std::vector<uint32_t> characters_;
  std::vector<size_t> offsets_;  // of each character, and of the end
};

Value wordwrap(Interpreter& in, const Value& value, const Arguments& args) {
  const auto a = bind(in, "wordwrap", args, "width break_long_words wrapstring break_on_hyphens");
  const int64_t width = whole_or(in, a[0], 79);
  if (!value.is(Kind::kString)) in.fail("wordwrap() needs a string, not %s", type_name(value));
  if (in.ok() && width <= 0) {
    in.fail("invalid width %lld (must be > 0)", static_cast<long long>(width));
  }
  if (!in.ok()) return {};
  const WrapStyle style{static_cast<size_t>(width), a[1] == nullptr || in.truth(*a[1]),
                        a[3] == nullptr || in.truth(*a[3])};
  const bool given = a[2] != nullptr && !a[2]->is(Kind::kNone);
  const Text separator = given ? in.str(*a[2]) : Text("\n");
  const Value lines = call_string_method(in, value, "splitlines", {});
  if (!in.ok()) return {};
  Text out;
  bool first = true;
  for (const Value& line : in.items(lines)) {
    const Text& text = line.string->text;
    if (!std::exchange(first, false)) out.append(separator);
    if (!in.spend(16 * text.size() + separator.size())) return {};
    bool begins = true;
    for (const Text& part : LineWrapper(text, style).wrap()) {
      if (!std::exchange(begins, false)) out.append(separator);
      out.append(part);
      if (!in.spend(separator.size())) return {};
    }
  }
  return in.text(std::move(out));
}

Value filesizeformat(Interpreter& in, const Value& value, const Arguments& args) {
  const auto a = bind(in, "filesizeformat", args, "binary");
  const bool binary = a[0] != nullptr && in.truth(*a[0]);
  // float() fails where the filter float has its default.
  Arguments nan;
  nan.places.emplace_back(std::nan(""));
  const Value number = in.filter("float", value, nan);
  if (!in.ok()) return {};
  const double bytes = number.real(), base = binary ? 1024 : 1000;
  if (!std::isfinite(bytes)) return in.fail("filesizeformat() needs a number");
  if (bytes == 1) return in.text("1 Byte");
  if (bytes < base) return in.text(fixed_text(std::trunc(bytes), 0) + " Bytes");
  constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base * base;
  size_t i = 0;
  for (; bytes >= unit && i + 1 < kPrefixes.size(); ++i) unit *= base;
  std::string out = fixed_text(base * bytes / unit, 1) + ' ';
  out += binary && i == 0 ? 'K' : kPrefixes[i];
  return in.text(out + (binary ? "iB" : "B"));
}

Value xmlattr(Interpreter& in, const Value& value, const Arguments& args) {
  const auto a = bind(in, "xmlattr", args, "autospace");
  if (value.is(Kind::kUndefined)) return in.fail_undefined(value);
  if (!value.is(Kind::kDict)) {
    return in.fail("'%s' object has no attribute 'items'", type_name(value));
  }
  const bool spaced = a[0] == nullptr || in.truth(*a[0]);
  Text out;
  for (const auto& [key, each] : value.dict->entries) {
    if (each.is_absent()) continue;
    if (!key.is(Kind::kString)) return in.fail("expected string or bytes-like object");
    const std::string_view name = key.string->text.view();
    for (size_t at = 0, n = 0; at < name.size(); at += n) {
      const uint32_t cp = code_point(name, at, &n);
      if (!is_space(cp) && cp != '/' && cp != '>' && cp != '=') continue;
      Text shown;
      in.print_repr(key, &shown);
      return in.fail("Invalid character in attribute name: %.80s",
                     std::string(shown.view()).c_str());
    }
    if (out.size() > 0 || spaced) out.append(" ");
    const Value escaped_name = in.filter("escape", key, {});
    const Value escaped = in.filter("escape", each, {});
    if (!in.ok()) return {};
    out.append(escaped_name.string->text);
    out.append("=\"");
    out.append(escaped.string->text);
    out.append("\"");
  }
  return in.text(std::move(out));
}

constexpr NamedFilter kLayoutFilters[] = {
    {"wordwrap", wordwrap},
    {"filesizeformat", filesizeformat},
    {"xmlattr", xmlattr},
    {"pprint", pprint},
};

}  // namespace

Filter find_layout_filter(std::string_view name) {
  for (const NamedFilter& each : kLayoutFilters) {
    if (each.name == name) return each.filter;
  }
  return nullptr;
}

}  // namespace sluice::jinja

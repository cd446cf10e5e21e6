// Methods of str. They count characters as Python does and keep content marks.
#include <algorithm>

#include "jinja/interpreter.h"
#include "tokenizer/unicode.h"

namespace sluice::jinja {
namespace {

using tokenizer::CharClass;

constexpr int64_t kMaxPadding = 100'000;  // maximum padded width

// One call: the string and the arguments.
struct Call {
  Interpreter& in;
  const Value& self;
  std::string_view name;
  const Arguments& args;

  [[nodiscard]] const Text& text() const { return self.string->text; }
  [[nodiscard]] std::string_view view() const { return text().view(); }
  [[nodiscard]] Value cut(size_t begin, size_t end) const {
    return in.text(text().slice(begin, end), self.string->markup);
  }
  [[nodiscard]] Value changed(std::string_view bytes) const {
    return in.text(text().with_bytes(bytes), self.string->markup);
  }
  // Argument as text. Fails and returns an empty text if it is not a string.
  [[nodiscard]] const Text& wanted(const Value* value) const {
    static const Text kEmpty;
    if (value != nullptr && value->is(Kind::kString)) return value->string->text;
    in.fail("%s() needs a string, not %s", std::string(name).c_str(),
            value != nullptr ? type_name(*value) : "nothing");
    return kEmpty;
  }
  [[nodiscard]] Bound bound(std::string_view names) const {
    return bind(in, std::string(name).c_str(), args, names);
  }
};

// The part of a call's text that its arguments start and end select.
struct Range {
  std::string_view text;
  size_t begin = 0;   // characters before it
  bool valid = true;  // false: start is behind the end of the text
};

Range range_of(const Call& call, const Value* start, const Value* end) {
  Range out{call.view()};
  if (start == nullptr && end == nullptr) return out;
  const auto n = static_cast<int64_t>(count_characters(out.text));
  const auto placed = [&](const Value* at, int64_t otherwise) {
    const int64_t given = whole_or(call.in, at, otherwise);
    return given < 0 ? std::max<int64_t>(given + n, 0) : given;
  };
  const int64_t from = placed(start, 0), to = std::min(placed(end, n), n);
  out.valid = from <= n && from <= to;
  const size_t first = character_offset(out.text, static_cast<size_t>(std::min(from, n)));
  const size_t last = character_offset(out.text, static_cast<size_t>(to));
  out.text = out.text.substr(first, std::max(first, last) - first);
  out.begin = static_cast<size_t>(std::min(from, n));
  return out;
}

using Method = Value (*)(const Call& call);

Value strip(const Call& call) {
  const auto a = call.bound("chars");
  const std::string_view text = call.view();
  const bool left = call.name != "rstrip", right = call.name != "lstrip";
  size_t begin = 0, end = text.size();
  if (a[0] == nullptr || a[0]->is(Kind::kNone)) {
    if (left) begin = leading_space(text);
    if (right) end = std::max(begin, trailing_space(text));
    return call.cut(begin, end);
  }
  const std::string_view set = call.wanted(a[0]).view();
  call.in.spend(set.size());
  const auto member = [&](size_t at, size_t bytes) {
    call.in.spend(set.size() / 8 + 1);
    return set.find(text.substr(at, bytes)) != std::string_view::npos;
  };
  for (size_t bytes = 0; left && begin < end && call.in.ok(); begin += bytes) {
    (void)code_point(text, begin, &bytes);
    if (!member(begin, bytes)) break;
  }
  while (right && end > begin && call.in.ok()) {
    size_t at = end - 1;
    while (at > begin && (static_cast<uint8_t>(text[at]) & 0xc0) == 0x80) --at;
    if (!member(at, end - at)) break;
    end = at;
  }
  return call.cut(begin, end);
}

Value begins_or_ends(const Call& call) {
  const auto a = call.bound("/ / /");
  const Range range = range_of(call, a[1], a[2]);
  const bool several = a[0] != nullptr && a[0]->is(Kind::kSequence);
  std::vector<Value> parts = several ? call.in.items(*a[0]) : std::vector<Value>();
  if (!several && a[0] != nullptr) parts.push_back(*a[0]);
  if (a[0] == nullptr) (void)call.wanted(nullptr);
  for (const Value& part : parts) {
    const std::string_view sought = call.wanted(&part).view();
    const bool found =
        call.name == "startswith" ? range.text.starts_with(sought) : range.text.ends_with(sought);
    if (found && range.valid && call.in.ok()) return Value(true);
  }
  return Value(false);
}

// Offsets of `sought` in `text`, non-overlapping, at most `limit` (-1: all).
std::vector<size_t> places(Interpreter& in, std::string_view text, std::string_view sought,
                           int64_t limit) {
  std::vector<size_t> out;
  size_t from = 0;
  while ((limit < 0 || static_cast<int64_t>(out.size()) < limit) && in.spend(32)) {
    const size_t at = text.find(sought, from);
    if (at == std::string_view::npos) break;
    out.push_back(at);
    if (!sought.empty()) {
      from = at + sought.size();
      continue;
    }
    if (at >= text.size()) break;
    from = at + character_offset(text.substr(at), 1);
  }
  return out;
}

Value replace(const Call& call) {
  const auto a = call.bound("old new count");
  const std::string_view old = call.wanted(a[0]).view();
  const Text& by = call.wanted(a[1]);
  const int64_t limit = whole_or(call.in, a[2], -1);
  Text out;
  size_t done = 0;
  for (const size_t at : places(call.in, call.view(), old, limit)) {
    if (!call.in.spend(by.size())) return {};
    out.append(call.text(), done, at);
    out.append(by);
    done = at + old.size();
  }
  out.append(call.text(), done, call.text().size());
  return call.in.text(std::move(out), call.self.string->markup);
}

// Splits at runs of white space.
Value words(const Call& call, int64_t limit) {
  const std::string_view text = call.view();
  std::vector<Value> out;
  size_t at = leading_space(text);
  while (at < text.size() && call.in.spend(64)) {
    size_t end = at;
    if (limit >= 0 && static_cast<int64_t>(out.size()) >= limit) {
      end = text.size();
    } else {
      for (size_t bytes = 0; end < text.size(); end += bytes) {
        if (is_space(code_point(text, end, &bytes))) break;
      }
    }
    out.push_back(call.cut(at, end));
    at = end + leading_space(text.substr(end));
  }
  return call.in.sequence(std::move(out));
}

Value split(const Call& call) {
  const auto a = call.bound("sep maxsplit");
  const int64_t limit = whole_or(call.in, a[1], -1);
  const bool from_right = call.name == "rsplit";
  if (a[0] == nullptr || a[0]->is(Kind::kNone)) {
    if (from_right && limit >= 0) return call.in.fail("rsplit() with a limit needs a separator");
    return words(call, limit);
  }
  const std::string_view separator = call.wanted(a[0]).view();
  if (separator.empty()) return call.in.fail("empty separator");
  std::vector<size_t> at = places(call.in, call.view(), separator, from_right ? -1 : limit);
  const auto most = static_cast<size_t>(std::max<int64_t>(limit, 0));
  if (from_right && limit >= 0 && at.size() > most) {
    at.erase(at.begin(), at.end() - static_cast<ptrdiff_t>(most));
  }
  std::vector<Value> out;
  size_t done = 0;
  for (const size_t place : at) {
    out.push_back(call.cut(done, place));
    done = place + separator.size();
  }
  out.push_back(call.cut(done, call.text().size()));
  return call.in.sequence(std::move(out));
}

Value splitlines(const Call& call) {
  const auto a = call.bound("keepends");
  const bool keeps = a[0] != nullptr && call.in.truth(*a[0]);
  const std::string_view text = call.view();
  std::vector<Value> out;
  size_t begin = 0;
  for (size_t at = 0; at < text.size() && call.in.ok();) {
    size_t bytes = 0;
    const uint32_t cp = code_point(text, at, &bytes);
    const bool ends = (cp >= 0x0a && cp <= 0x0d) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 ||
                      cp == 0x2028 || cp == 0x2029;
    const size_t next = at + bytes + (cp == '\r' && text.substr(at + 1).starts_with('\n') ? 1 : 0);
    if (ends) {
      out.push_back(call.cut(begin, keeps ? next : at));
      begin = next;
    }
    at = next;
  }
  if (begin < text.size()) out.push_back(call.cut(begin, text.size()));
  return call.in.sequence(std::move(out));
}

Value join(const Call& call) {
  const auto a = call.bound("/");
  if (a[0] == nullptr) return call.in.fail("join() takes exactly one argument (0 given)");
  Text out;
  bool first = true;
  for (const Value& part : call.in.items(*a[0])) {
    if (!std::exchange(first, false)) out.append(call.text());
    out.append(call.wanted(&part));
    if (!call.in.spend(call.text().size() + 16)) return {};
  }
  return call.in.text(std::move(out), call.self.string->markup);
}

Value find(const Call& call) {
  const auto a = call.bound("/ / /");
  const Range range = range_of(call, a[1], a[2]);
  const std::string_view text = range.text, sought = call.wanted(a[0]).view();
  if (call.name == "count") {
    const size_t n = range.valid ? places(call.in, text, sought, -1).size() : 0;
    return Value(static_cast<int64_t>(n));
  }
  const bool last = call.name[0] == 'r';
  const size_t at = last ? text.rfind(sought) : text.find(sought);
  if (at != std::string_view::npos && range.valid) {
    return Value(static_cast<int64_t>(range.begin + count_characters(text.substr(0, at))));
  }
  return call.name.ends_with("index") ? call.in.fail("substring not found") : Value(int64_t{-1});
}

Value cases(const Call& call) {
  (void)call.bound("");
  if (call.name == "upper") return call.changed(to_upper(call.view()));
  if (call.name == "title") return call.changed(to_title(call.view()));
  if (call.name == "capitalize") return call.changed(to_capitalized(call.view()));
  return call.changed(to_lower(call.view()));
}

Value swapped(const Call& call) {
  (void)call.bound("");
  const std::string_view text = call.view();
  std::string out;
  for (size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
    (void)code_point(text, at, &bytes);
    const std::string_view one = text.substr(at, bytes);
    const std::string lower = to_lower(one);
    out += lower == one ? to_upper(one) : lower;
  }
  return call.changed(out);
}

Value expanded(const Call& call) {
  const auto a = call.bound("tabsize");
  const int64_t width = whole_or(call.in, a[0], 8);
  if (width > kMaxPadding) return call.in.fail("the tabs are too wide");
  Text out;
  int64_t column = 0;
  for (size_t at = 0, bytes = 0; at < call.text().size() && call.in.ok(); at += bytes) {
    const uint32_t cp = code_point(call.view(), at, &bytes);
    if (cp == '\t') {
      const int64_t more = width > 0 ? width - column % width : 0;
      call.in.spend(static_cast<uint64_t>(more));
      out.append(std::string(static_cast<size_t>(more), ' '));
      column += more;
    } else {
      out.append(call.text(), at, at + bytes);
      column = cp == '\n' || cp == '\r' ? 0 : column + 1;
    }
  }
  return call.in.text(std::move(out), call.self.string->markup);
}

Value removed(const Call& call) {
  const auto a = call.bound("/");
  const std::string_view part = call.wanted(a[0]).view();
  const size_t n = call.text().size();
  if (call.name == "removeprefix") {
    return call.cut(call.view().starts_with(part) ? part.size() : 0, n);
  }
  return call.cut(0, call.view().ends_with(part) ? n - part.size() : n);
}

Value partition(const Call& call) {
  const auto a = call.bound("/");
  const std::string_view text = call.view(), separator = call.wanted(a[0]).view();
  if (separator.empty()) return call.in.fail("empty separator");
  const bool last = call.name == "rpartition";
  const size_t at = last ? text.rfind(separator) : text.find(separator);
  const Value empty = call.in.text("");
  std::vector<Value> out;
  if (at == std::string_view::npos) {
    out = last ? std::vector<Value>{empty, empty, call.self}
               : std::vector<Value>{call.self, empty, empty};
  } else {
    const size_t end = at + separator.size();
    out = {call.cut(0, at), call.cut(at, end), call.cut(end, text.size())};
  }
  return call.in.sequence(std::move(out), Flavor::kTuple);
}

Value padded(const Call& call) {
  const auto a = call.bound("width fillchar");
  const int64_t width = whole_or(call.in, a[0], 0);
  if (width > kMaxPadding) return call.in.fail("the padding is too wide");
  const bool zeros = call.name == "zfill";
  const Text fill = a[1] != nullptr && !zeros ? call.wanted(a[1]) : Text(zeros ? "0" : " ");
  if (count_characters(fill.view()) != 1)
    return call.in.fail("the fill character must be exactly one character long");
  const int64_t more =
      std::max<int64_t>(width - static_cast<int64_t>(count_characters(call.view())), 0);
  int64_t before = call.name == "rjust" || zeros ? more : 0;
  if (call.name == "center") before = more / 2 + (more & width & 1);
  const bool sign = zeros && (call.view().starts_with('-') || call.view().starts_with('+'));
  Text out = call.text().slice(0, sign ? 1 : 0);
  for (int64_t i = 0; i < before; ++i) out.append(fill);
  out.append(call.text(), sign ? 1 : 0, call.text().size());
  for (int64_t i = before; i < more; ++i) out.append(fill);
  return call.in.text(std::move(out), call.self.string->markup);
}

// isdigit() and the like: true if the text is not empty and all characters match.
Value of_kind(const Call& call) {
  (void)call.bound("");
  const std::string_view text = call.view();
  const std::string_view name = call.name;
  if (name == "isupper" || name == "islower") {
    const bool cased = to_upper(text) != to_lower(text);
    return Value(cased && text == (name == "isupper" ? to_upper(text) : to_lower(text)));
  }
  if (name == "istitle") {
    return Value(to_upper(text) != to_lower(text) && text == to_title(text));
  }
  if (name == "isidentifier" && !text.empty()) {
    size_t bytes = 0;
    if (tokenizer::char_class(code_point(text, 0, &bytes)) == CharClass::kNumber)
      return Value(false);
  }
  for (size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
    const uint32_t cp = code_point(text, at, &bytes);
    const CharClass kind = tokenizer::char_class(cp);
    const bool letter = kind == CharClass::kLetter, number = kind == CharClass::kNumber;
    const bool fits = name == "isspace"        ? is_space(cp)
                      : name == "isalpha"      ? letter
                      : name == "isalnum"      ? letter || number
                      : name == "isascii"      ? cp < 0x80
                      : name == "isidentifier" ? letter || number || cp == '_'
                                               : number;
    if (!fits) return Value(false);
  }
  return Value(!text.empty() || name == "isascii");
}

Value encoded(const Call& call) {
  return encode(call.in, call.self, call.args);
}

Value format(const Call& call) {
  return brace_format(call.in, call.text(), call.args);
}

struct NamedMethod {
  std::string_view name;
  Method method;
};

constexpr NamedMethod kMethods[] = {
    {"strip", strip},
    {"lstrip", strip},
    {"rstrip", strip},
    {"startswith", begins_or_ends},
    {"endswith", begins_or_ends},
    {"replace", replace},
    {"split", split},
    {"rsplit", split},
    {"splitlines", splitlines},
    {"join", join},
    {"find", find},
    {"rfind", find},
    {"index", find},
    {"rindex", find},
    {"count", find},
    {"upper", cases},
    {"lower", cases},
    {"casefold", cases},
    {"swapcase", swapped},
    {"expandtabs", expanded},
    {"title", cases},
    {"capitalize", cases},
    {"removeprefix", removed},
    {"removesuffix", removed},
    {"partition", partition},
    {"rpartition", partition},
    {"center", padded},
    {"ljust", padded},
    {"rjust", padded},
    {"zfill", padded},
    {"isdigit", of_kind},
    {"isdecimal", of_kind},
    {"isnumeric", of_kind},
    {"isalpha", of_kind},
    {"isalnum", of_kind},
    {"isspace", of_kind},
    {"isascii", of_kind},
    {"isupper", of_kind},
    {"islower", of_kind},
    {"istitle", of_kind},
    {"isidentifier", of_kind},
    {"format", format},
    {"encode", encoded},
};

const NamedMethod* find_method(std::string_view name) {
  for (const NamedMethod& each : kMethods) {
    if (each.name == name) return &each;
  }
  return nullptr;
}

}  // namespace

bool has_string_method(std::string_view name) {
  return find_method(name) != nullptr;
}

Value call_string_method(Interpreter& in, const Value& self, std::string_view name,
                         const Arguments& args) {
  const NamedMethod* found = find_method(name);
  if (found == nullptr || !in.spend(self.string->text.size())) return {};
  const Value out = found->method({in, self, name, args});
  return in.ok() ? out : Value();
}

}  // namespace sluice::jinja

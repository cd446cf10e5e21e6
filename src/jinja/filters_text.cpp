// Filters that make text or numbers from one value.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "jinja/interpreter.h"
#include "jinja/numbers.h"

namespace sluice::jinja {
namespace {

constexpr int64_t kMaxIndent = 1000;

// Converts the operand to text; markup stays markup.
Value soft(Interpreter& in, const Value& value) {
  return value.is(Kind::kString) ? value : in.text(in.str(value));
}

Value method(Interpreter& in, const Value& value, std::string_view name, const Arguments& args) {
  const Value text = soft(in, value);
  return in.ok() ? call_string_method(in, text, name, args) : Value();
}

Value string(Interpreter& in, const Value& value, const Arguments&) {
  return soft(in, value);
}
Value upper(Interpreter& in, const Value& value, const Arguments& args) {
  return method(in, value, "upper", args);
}
Value lower(Interpreter& in, const Value& value, const Arguments& args) {
  return method(in, value, "lower", args);
}
Value capitalize(Interpreter& in, const Value& value, const Arguments& args) {
  return method(in, value, "capitalize", args);
}
Value trim(Interpreter& in, const Value& value, const Arguments& args) {
  return method(in, value, "strip", args);
}

// A word starts after white space, brackets or a hyphen, but not after other punctuation.
Value title(Interpreter& in, const Value& value, const Arguments& args) {
  (void)bind(in, "title", args, "");
  const Value text = soft(in, value);
  if (!in.ok()) return {};
  const std::string_view bytes = text.string->text.view();
  in.spend(bytes.size());
  std::string out;
  bool begins = true;
  for (size_t at = 0, n = 0; at < bytes.size(); at += n) {
    const uint32_t cp = code_point(bytes, at, &n);
    const std::string_view character = bytes.substr(at, n);
    out += begins ? to_upper(character) : to_lower(character);
    begins = is_space(cp) || (cp < 0x80 && std::string_view("-({[<").find(static_cast<char>(cp)) !=
                                               std::string_view::npos);
  }
  return in.text(text.string->text.with_bytes(out), text.string->markup);
}

Value center(Interpreter& in, const Value& value, const Arguments& args) {
  const auto a = bind(in, "center", args, "width");
  Arguments passed;
  passed.places.push_back(a[0] != nullptr ? *a[0] : Value(int64_t{80}));
  return method(in, value, "center", passed);
}

Value replace(Interpreter& in, const Value& value, const Arguments& args) {
  const auto a = bind(in, "replace", args, "old new count");
  if (a[0] == nullptr || a[1] == nullptr) return in.fail("replace() needs two strings");
  Arguments passed;
  passed.places = {in.text(in.str(*a[0])), in.text(in.str(*a[1]))};
  if (a[2] != nullptr && !a[2]->is(Kind::kNone)) passed.places.push_back(*a[2]);
  const Value plain = in.text(in.str(value));
  return in.ok() ? call_string_method(in, plain, "replace", passed) : Value();
}

Value safe(Interpreter& in, const Value& value, const Arguments&) {
  return in.text(in.str(value), true);
}

Value escape(Interpreter& in, const Value& value, const Arguments&) {
  if (value.is(Kind::kString) && value.string->markup) return value;
  const Value empty = in.text(Text(), true), text = in.text(in.str(value));
  return in.ok() ? in.add(empty, text) : Value();
}

Value force_escape(Interpreter& in, const Value& value, const Arguments&) {
  const Value text = in.text(in.str(value));
  return in.ok() ? in.add(in.text(Text(), true), text) : Value();
}

// Drops tags and comments; white space becomes single spaces.
Value strip_tags(Interpreter& in, const Value& value, const Arguments& args) {
  (void)bind(in, "striptags", args, "");
  const Text all = in.str(value);
  const std::string_view text = all.view();
  Text kept;
  for (size_t at = 0; at < text.size() && in.spend(16);) {
    const size_t open = std::min(text.find('<', at), text.size());
    kept.append(all, at, open);
    const bool comment = text.substr(open).starts_with("<!--");
    const size_t close = comment ? text.find("-->", open) : text.find('>', open);
    if (open < text.size() && close == std::string_view::npos) kept.append(all, open, text.size());
    at = close == std::string_view::npos ? text.size() : close + (comment ? 3 : 1);
    if (open == text.size()) break;
  }
  const Value words = method(in, in.text(std::move(kept)), "split", {});
  Arguments passed;
  passed.places.push_back(words);
  return in.ok() ? call_string_method(in, in.text(" "), "join", passed) : Value();
}

// Cuts text after `length` characters, at a space unless `killwords`. `leeway`: so much longer text
// stays whole.
Value truncate(Interpreter& in, const Value& value, const Arguments& args) {
  const auto a = bind(in, "truncate", args, "length killwords end leeway");
  const Value all = soft(in, value);
  const int64_t length = whole_or(in, a[0], 255), leeway = whole_or(in, a[3], 5);
  const Text end = a[2] != nullptr ? in.str(*a[2]) : Text("...");
  if (!in.ok()) return {};
  const Text& text = all.string->text;
  const auto size = static_cast<int64_t>(count_characters(text.view()));
  const int64_t room = length - static_cast<int64_t>(count_characters(end.view()));
  if (room < 0) return in.fail("expected length >= %zu", count_characters(end.view()));
  if (size <= length || size - length <= leeway) return all;
  size_t cut = character_offset(text.view(), static_cast<size_t>(room));
  const bool kills = a[1] != nullptr && in.truth(*a[1]);
  const size_t space = text.view().substr(0, cut).rfind(' ');
  if (!kills && space != std::string_view::npos) cut = space;
  Text out = text.slice(0, cut);
  out.append(end);
  return in.text(std::move(out));
}

// Percent-encodes a string; pairs become a query.
Value url_encode(Interpreter& in, const Value& value, const Arguments& args) {
  (void)bind(in, "urlencode", args, "");
  const auto append = [&](const Value& part, bool query, Text* out) {
    const Text text = in.str(part);
    for (const char c : text.view()) {
      const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                         (c >= '0' && c <= '9') || std::string_view("_.-~").find(c) < 4 ||
                         (c == '/' && !query);
      char code[4];
      std::snprintf(code, sizeof code, "%%%02X", static_cast<unsigned>(static_cast<uint8_t>(c)));
      out->append(plain ? std::string_view(&c, 1) : query && c == ' ' ? "+" : code);
      if (!in.spend(4)) return;
    }
  };
  Text out;
  if (!value.is(Kind::kDict) && !value.is(Kind::kSequence)) {
    append(value, false, &out);
    return in.text(std::move(out));
  }
  const Value all = is_mapping(value) ? in.filter("items", value, {}) : value;
  for (const Value& each : in.items(all)) {
    const std::vector<Value> pair = in.items(each);
    if (pair.size() != 2) return in.fail("urlencode() needs pairs");
    if (out.size() > 0) out.append("&");
    append(pair[0], true, &out);
    out.append("=");
    append(pair[1], true, &out);
  }
  return in.text(std::move(out));
}

Value indent(Interpreter& in, const Value& value, const Arguments& args) {
  const auto a = bind(in, "indent", args, "width first blank");
  const bool by_text = a[0] != nullptr && a[0]->is(Kind::kString);
  const int64_t width = by_text ? 0 : whole_or(in, a[0], 4);
  if (width > kMaxIndent) in.fail("the indentation is too wide");
  if (!value.is(Kind::kString)) in.fail("indent() needs a string, not %s", type_name(value));
  if (!in.ok()) return {};
  const Text margin =
      by_text ? a[0]->string->text
              : Text(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '));
  const bool first = a[1] != nullptr && in.truth(*a[1]);
  const bool blank = a[2] != nullptr && in.truth(*a[2]);
  // jinja2 appends a newline first, so that an empty last line counts as a line.
  const Value lines = call_string_method(in, in.add(value, in.text("\n")), "splitlines", {});
  if (!in.ok()) return {};
  Text out;
  bool at_first = true;
  for (const Value& line : in.items(lines)) {
    const bool leads = std::exchange(at_first, false);
    const bool wanted = leads ? first : blank || line.string->text.size() > 0;
    if (!leads) out.append("\n");
    if (wanted) out.append(margin);
    out.append(line.string->text);
    if (!in.spend(margin.size() + line.string->text.size())) return {};
  }
  return in.text(std::move(out), value.string->markup);
}

Value tojson(Interpreter& in, const Value& value, const Arguments& args) {
  const auto a = bind(in, "tojson", args, "ensure_ascii indent separators sort_keys");
  Interpreter::JsonStyle style;
  style.ascii = a[0] != nullptr && in.truth(*a[0]);
  style.sorted = a[3] != nullptr && in.truth(*a[3]);
  if (a[1] != nullptr && !a[1]->is(Kind::kNone)) {
    style.indent = std::max<int64_t>(whole_or(in, a[1], 0), 0);
    style.item = Text(",");
    if (style.indent > kMaxIndent) return in.fail("the indentation is too wide");
  }
  if (a[2] != nullptr && !a[2]->is(Kind::kNone)) {
    const std::vector<Value> pair = in.items(*a[2]);
    if (pair.size() != 2 || !pair[0].is(Kind::kString) || !pair[1].is(Kind::kString)) {
      return in.fail("separators must be two strings");
    }
    style.item = pair[0].string->text;
    style.key = pair[1].string->text;
  }
  Text out;
  in.print_json(value, style, 0, &out);
  return in.ok() ? in.text(std::move(out)) : Value();
}

// The longest prefix that is a number in Python's syntax.
std::string digits_of(std::string_view text) {
  text = text.substr(leading_space(text));
  text = text.substr(0, trailing_space(text));
  std::string out(text.starts_with('+') ? text.substr(1) : text);
  std::erase(out, '_');
  return out;
}

bool read_number(std::string_view text, double* out) {
  const std::optional<double> number = read_double(digits_of(text));
  *out = number.value_or(0);
  return number.has_value();
}

std::optional<int64_t> whole_of(std::string_view text, unsigned base) {
  std::string digits = digits_of(text);
  const bool negative = digits.starts_with('-');
  if (negative) digits.erase(0, 1);
  const std::string prefix = base == 16 ? "0x" : base == 8 ? "0o" : base == 2 ? "0b" : "";
  if (!prefix.empty() && to_lower(digits).starts_with(prefix)) digits.erase(0, 2);
  if (negative) digits.insert(0, "-");
  return read_whole(digits, base);
}

Value integer(Interpreter& in, const Value& value, const Arguments& args) {
  const auto a = bind(in, "int", args, "default base");
  const Value otherwise = a[0] != nullptr ? *a[0] : Value(int64_t{0});
  const int64_t base = whole_or(in, a[1], 10);
  if (base < 2 || base > 36) return in.fail("int() base must be >= 2 and <= 36, or 0");
  if (is_integer_numeral(value)) return value;
  if (value.is_whole()) return Value(value.whole());
  double real = value.is(Kind::kFloat) ? value.number : 0;
  if (value.is(Kind::kString)) {
    const std::string_view text = value.string->text.view();
    in.spend(text.size());
    if (const auto whole = whole_of(text, static_cast<unsigned>(base))) return Value(*whole);
    if (!read_number(text, &real)) return otherwise;
  } else if (!value.is(Kind::kFloat)) {
    if (value.is(Kind::kUndefined)) return in.fail_undefined(value);
    return otherwise;
  }
  return std::fabs(real) < 0x1p63 ? Value(static_cast<int64_t>(real)) : otherwise;
}

Value floating(Interpreter& in, const Value& value, const Arguments& args) {
  const auto a = bind(in, "float", args, "default");
  const Value otherwise = a[0] != nullptr ? *a[0] : Value(0.0);
  if (value.is_number()) return Value(value.real());
  if (value.is(Kind::kUndefined)) return in.fail_undefined(value);
  double real = 0;
  if (!value.is(Kind::kString) || !read_number(value.string->text.view(), &real)) return otherwise;
  return Value(real);
}

Value absolute(Interpreter& in, const Value& value, const Arguments&) {
  if (value.is(Kind::kUndefined)) return in.fail_undefined(value);
  if (!value.is_number()) return in.fail("bad operand type for abs(): '%s'", type_name(value));
  if (value.is(Kind::kFloat)) return Value(std::fabs(value.number));
  return value.whole() < 0 ? in.binary("-", Value(int64_t{0}), value) : Value(value.whole());
}

// Rounds half to even, as Python does, at `precision` decimal digits.
Value round(Interpreter& in, const Value& value, const Arguments& args) {
  const auto a = bind(in, "round", args, "precision method");
  const int64_t precision = std::clamp<int64_t>(whole_or(in, a[0], 0), -300, 300);
  const std::string_view method =
      a[1] != nullptr && a[1]->is(Kind::kString) ? a[1]->string->text.view() : "common";
  if (value.is(Kind::kUndefined)) return in.fail_undefined(value);
  if (!value.is_number()) return in.fail("type %s cannot be rounded", type_name(value));
  if (method == "common" && value.is_whole() && precision >= 0) return Value(value.whole());
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "common" && value.is_whole()) {
    return Value(static_cast<int64_t>(std::nearbyint(value.real() * scale) / scale));
  }
  if (method == "ceil") return Value(std::ceil(value.real() * scale) / scale);
  if (method == "floor") return Value(std::floor(value.real() * scale) / scale);
  if (method != "common") return in.fail("method must be common, ceil or floor");
  if (precision < 0) return Value(std::nearbyint(value.real() * scale) / scale);
  if (!std::isfinite(value.real())) return value;
  const std::string text = fixed_text(value.real(), static_cast<int>(precision));
  return Value(read_double(text).value_or(value.real()));
}

Value wordcount(Interpreter& in, const Value& value, const Arguments&) {
  const Value words = method(in, value, "split", {});
  return in.ok() ? Value(static_cast<int64_t>(words.sequence->items.size())) : Value();
}

Value format(Interpreter& in, const Value& value, const Arguments& args) {
  const Value text = soft(in, value);
  if (!args.names.empty() && !args.places.empty()) {
    in.fail("can't handle positional and keyword arguments at the same time");
  }
  if (!in.ok()) return {};
  if (!args.names.empty()) {
    auto* named = in.make<Dict>();
    for (const auto& [key, each] : args.names) in.put(named, in.text(key), each);
    return percent_format(in, text.string->text, Value(named));
  }
  return percent_format(in, text.string->text, in.sequence(args.places, Flavor::kTuple));
}

Value fallback(Interpreter& in, const Value& value, const Arguments& args) {
  const auto a = bind(in, "default", args, "default_value boolean");
  const bool by_truth = a[1] != nullptr && in.truth(*a[1]);
  if (!value.is(Kind::kUndefined) && !(by_truth && !in.truth(value))) return value;
  return a[0] != nullptr ? *a[0] : in.text("");
}

constexpr NamedFilter kTextFilters[] = {
    {"string", string},
    {"upper", upper},
    {"lower", lower},
    {"capitalize", capitalize},
    {"trim", trim},
    {"title", title},
    {"center", center},
    {"replace", replace},
    {"safe", safe},
    {"e", escape},
    {"escape", escape},
    {"indent", indent},
    {"tojson", tojson},
    {"int", integer},
    {"float", floating},
    {"abs", absolute},
    {"round", round},
    {"format", format},
    {"wordcount", wordcount},
    {"default", fallback},
    {"d", fallback},
    {"forceescape", force_escape},
    {"striptags", strip_tags},
    {"truncate", truncate},
    {"urlencode", url_encode},
};

}  // namespace

Filter find_text_filter(std::string_view name) {
  for (const NamedFilter& each : kTextFilters) {
    if (each.name == name) return each.filter;
  }
  return nullptr;
}

}  // namespace sluice::jinja

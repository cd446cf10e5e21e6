// Implements "%s" % values, "{}".format(…) and strftime.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "jinja/interpreter.h"
#include "jinja/numbers.h"
#include "platform/calendar.h"
#include "tokenizer/utf8.h"

namespace sluice::jinja {
namespace {

constexpr int64_t kMaxWidth = 1000;

// A conversion's flags, between % or : and its letter.
struct Spec {
  Text fill = Text(" ");
  char align = '\0';  // < > ^ = or none
  char sign = '\0';   // + or a space
  char group = '\0';  // between thousands: , or _
  bool zeros = false, prefix = false;
  int64_t width = 0, precision = -1;
  char letter = '\0';
};

int64_t take_number(std::string_view text, size_t* at) {
  int64_t number = 0;
  for (; *at < text.size() && text[*at] >= '0' && text[*at] <= '9'; ++*at) {
    number = std::min<int64_t>(number * 10 + (text[*at] - '0'), kMaxWidth + 1);
  }
  return number;
}

// printf's %g: the shorter of both notations, without zeros at the end.
std::string general_text(double number, int precision) {
  const int digits = std::max(precision, 1);
  std::string text = exponent_text(number, digits - 1);
  const size_t mark = text.find('e');
  const int exponent = std::atoi(text.c_str() + mark + 1);
  const bool fixed = exponent >= -4 && exponent < digits;
  const std::string power = fixed ? "" : text.substr(mark);
  text = fixed ? fixed_text(number, digits - 1 - exponent) : text.substr(0, mark);
  if (text.find('.') == std::string::npos) return text + power;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text + power;
}

std::string number_text(Interpreter& in, const Value& value, const Spec& spec) {
  const char letter = spec.letter;
  const auto precision = static_cast<int>(spec.precision < 0 ? 6 : spec.precision);
  if (std::string_view("fFeEgG%").find(letter) != std::string_view::npos) {
    const double number = letter == '%' ? value.real() * 100 : value.real();
    const bool upper = letter == 'F' || letter == 'E' || letter == 'G';
    std::string text;
    if (!std::isfinite(number)) {
      text = float_text(number);
    } else if (letter == 'e' || letter == 'E') {
      text = exponent_text(number, precision);
    } else if (letter == 'g' || letter == 'G') {
      text = general_text(number, precision);
    } else {
      text = fixed_text(number, precision);
    }
    if (letter == '%') text += '%';
    return upper ? to_upper(text) : text;
  }
  if (value.is(Kind::kFloat) && letter != 'd') {
    in.fail("%%%.1s format: an integer is required, not float", &letter);
    return {};
  }
  const int64_t whole = value.is(Kind::kFloat) ? static_cast<int64_t>(value.number) : value.whole();
  const uint64_t size = whole < 0 ? 0 - static_cast<uint64_t>(whole) : static_cast<uint64_t>(whole);
  const unsigned base = letter == 'x' || letter == 'X' ? 16
                        : letter == 'o'                ? 8
                        : letter == 'b'                ? 2
                                                       : 10;
  char out[64];
  char* begin = std::end(out);
  uint64_t rest = size;
  do {
    *--begin = "0123456789abcdef"[rest % base];
    rest /= base;
  } while (rest > 0);
  const std::string digits(begin, std::end(out));
  std::string text = whole < 0 ? "-" : "";
  if (spec.prefix && base != 10) text += {'0', letter};
  return text + (letter == 'X' ? to_upper(digits) : digits);
}

// The number's digits before the point, with separators between thousands.
void group_digits(char separator, std::string* text) {
  const size_t begin = text->starts_with('-') ? 1 : 0;
  size_t at = std::min(text->find_first_not_of("0123456789", begin), text->size());
  while (at > begin + 3) text->insert(at -= 3, 1, separator);
}

// Pads `body` to its width. Zeros of numbers go after the sign.
void append_padded(Interpreter& in, const Text& body, const Spec& spec, char align, Text* out) {
  const auto size = static_cast<int64_t>(count_characters(body.view()));
  const int64_t more = std::max<int64_t>(spec.width - size, 0);
  const int64_t before = align == '>' ? more : align == '^' ? more / 2 : 0;
  in.spend(body.size() + static_cast<uint64_t>(more));
  for (int64_t i = 0; i < before; ++i) out->append(spec.fill);
  out->append(body);
  for (int64_t i = before; i < more; ++i) out->append(spec.fill);
}

void append_number(Interpreter& in, const Value& value, const Spec& spec, char align, Text* out) {
  if (!value.is_number()) {
    in.fail("%%%.1s format: a number is required, not %s", &spec.letter, type_name(value));
    return;
  }
  std::string text = number_text(in, value, spec);
  if (spec.group != '\0') group_digits(spec.group, &text);
  if (spec.sign != '\0' && !text.starts_with('-')) text.insert(0, 1, spec.sign);
  if (spec.zeros || align == '=') {
    const size_t at = !text.empty() && (text[0] == '-' || text[0] == '+' || text[0] == ' ') ? 1 : 0;
    const auto width = static_cast<size_t>(spec.width);
    const char fill = spec.zeros ? '0' : spec.fill.view()[0];
    if (text.size() < width) text.insert(at, width - text.size(), fill);
  }
  append_padded(in, Text(text), spec, align, out);
}

// One character, given as such or by its number.
void append_character(Interpreter& in, const Value& value, const Spec& spec, char align,
                      Text* out) {
  std::string text;
  if (value.is_whole() && value.whole() >= 0 && value.whole() <= 0x10ffff &&
      (value.whole() < 0xd800 || value.whole() > 0xdfff)) {
    tokenizer::append_utf8(static_cast<uint32_t>(value.whole()), &text);
  } else if (value.is(Kind::kString) && count_characters(value.string->text.view()) == 1) {
    return append_padded(in, value.string->text, spec, align, out);
  } else {
    in.fail("%%c requires int or char");
  }
  append_padded(in, Text(text), spec, align, out);
}

void append_text(Interpreter& in, const Text& text, const Spec& spec, char align, Text* out) {
  const size_t end = spec.precision < 0
                         ? text.size()
                         : character_offset(text.view(), static_cast<size_t>(spec.precision));
  append_padded(in, text.slice(0, end), spec, align, out);
}

bool within(Interpreter& in, const Spec& spec) {
  if (spec.width > kMaxWidth || spec.precision > kMaxWidth)
    in.fail("the width or precision of a format is too large");
  return in.ok();
}

}  // namespace

Value percent_format(Interpreter& in, const Text& format, const Value& values) {
  const bool tuple = values.is(Kind::kSequence) && values.sequence->flavor == Flavor::kTuple;
  const std::vector<Value> given = tuple ? values.sequence->items : std::vector<Value>{values};
  const std::string_view text = format.view();
  size_t next = 0, done = 0;
  Text out;
  for (size_t at = text.find('%'); at != std::string_view::npos && in.ok();) {
    out.append(format, done, at++);
    Spec spec;
    bool left = false;
    Value named;
    const bool by_name = at < text.size() && text[at] == '(';
    if (by_name) {
      const size_t close = text.find(')', at);
      if (close == std::string_view::npos) return in.fail("incomplete format key");
      if (!is_mapping(values)) return in.fail("format requires a mapping");
      const std::string key(text.substr(at + 1, close - at - 1));
      const Value* found = in.find(*values.dict, in.text(key));
      if (found == nullptr) return in.fail("the format has no value for '%.40s'", key.c_str());
      named = *found;
      at = close + 1;
    }
    for (; at < text.size(); ++at) {
      if (text[at] == '-') {
        left = true;
      } else if (text[at] == '0') {
        spec.zeros = true;
      } else if (text[at] == '+' || text[at] == ' ') {
        spec.sign = text[at];
      } else if (text[at] == '#') {
        spec.prefix = true;
      } else {
        break;
      }
    }
    spec.width = take_number(text, &at);
    if (at < text.size() && text[at] == '.') spec.precision = take_number(text, &++at);
    if (at == text.size()) return in.fail("incomplete format");
    spec.letter = text[at++];
    done = at;
    at = text.find('%', done);
    if (!within(in, spec)) return {};
    if (spec.letter == '%') {
      out.append("%");
      continue;
    }
    if (!by_name && next == given.size()) {
      return in.fail("not enough arguments for format string");
    }
    const Value& value = by_name ? named : given[next++];
    const char align = left ? '<' : '>';
    if (left) spec.zeros = false;
    if (spec.letter == 's' || spec.letter == 'r') {
      Text shown;
      spec.letter == 's' ? in.print(value, &shown) : in.print_repr(value, &shown);
      append_text(in, shown, spec, align, &out);
    } else if (spec.letter == 'c') {
      append_character(in, value, spec, align, &out);
    } else if (std::string_view("diuxXofFeEgG").find(spec.letter) != std::string_view::npos) {
      if (spec.letter == 'i' || spec.letter == 'u') spec.letter = 'd';
      append_number(in, value, spec, align, &out);
    } else {
      return in.fail("unsupported format character '%.1s'", &spec.letter);
    }
  }
  if (next < given.size() && (tuple || !is_mapping(values))) {
    return in.fail("not all arguments converted during string formatting");
  }
  out.append(format, done, format.size());
  return in.text(std::move(out));
}

namespace {

// Parses [[fill]align][sign][#][0][width][,][.precision][letter].
Spec read_spec(Interpreter& in, std::string_view text) {
  Spec spec;
  size_t at = 0;
  const auto aligns = [&](size_t i) {
    return i < text.size() && std::string_view("<>^=").find(text[i]) != std::string_view::npos;
  };
  const size_t first = character_offset(text, 1);
  if (!text.empty() && aligns(first)) {
    spec.fill = Text(text.substr(0, first));
    spec.align = text[first];
    at = first + 1;
  } else if (aligns(0)) {
    spec.align = text[at++];
  }
  if (at < text.size() && (text[at] == '+' || text[at] == ' ' || text[at] == '-')) {
    spec.sign = text[at] == '-' ? '\0' : text[at];
    ++at;
  }
  if (at < text.size() && text[at] == '#') {
    spec.prefix = true;
    ++at;
  }
  if (at < text.size() && text[at] == '0') {
    spec.zeros = spec.align == '\0';
    ++at;
  }
  spec.width = take_number(text, &at);
  if (at < text.size() && (text[at] == ',' || text[at] == '_')) spec.group = text[at++];
  if (at < text.size() && text[at] == '.') spec.precision = take_number(text, &++at);
  if (at < text.size()) spec.letter = text[at++];
  const bool known = spec.letter == '\0' ||
                     std::string_view("sdxXobcfFeEgG%").find(spec.letter) != std::string_view::npos;
  if (at < text.size() || !known) {
    in.fail("the format '%s' is not supported", std::string(text.substr(0, 40)).c_str());
  }
  return spec;
}

// The value that {field} refers to, by position or by name.
Value named_value(Interpreter& in, std::string_view field, const Arguments& args, size_t* next) {
  size_t index = *next;
  const std::optional<int64_t> number = read_whole(field);
  if (number) index = static_cast<size_t>(*number);
  if (field.empty()) ++*next;
  if ((field.empty() || number) && index < args.places.size()) return args.places[index];
  for (const auto& [name, value] : args.names) {
    if (name == field) return value;
  }
  return in.fail("format() has no value for '%s'", std::string(field.substr(0, 40)).c_str());
}

// The value of a field such as a, a.b or 0[key].
Value field_value(Interpreter& in, std::string_view field, const Arguments& args, size_t* next) {
  size_t end = std::min(field.find_first_of(".["), field.size());
  Value value = named_value(in, field.substr(0, end), args, next);
  while (end < field.size() && in.ok()) {
    const bool item = field[end] == '[';
    const size_t begin = end + 1;
    end = std::min(item ? field.find(']', begin) : field.find_first_of(".[", begin), field.size());
    const std::string_view name = field.substr(begin, end - begin);
    const std::optional<int64_t> index = item ? read_whole(name) : std::nullopt;
    value =
        item ? in.item(value, index ? Value(*index) : in.text(name)) : in.attribute(value, name);
    if (value.is(Kind::kUndefined)) return in.fail_undefined(value);
    if (item) ++end;
  }
  return value;
}

// The end of a field that begins at `at`, with fields inside it; npos if it is not closed.
size_t field_end(std::string_view text, size_t at) {
  size_t depth = 1;
  for (; at < text.size(); ++at) {
    if (text[at] == '{') ++depth;
    if (text[at] == '}' && --depth == 0) return at;
  }
  return std::string_view::npos;
}

// `depth`: 1 inside the specification of a field, which has no further fields.
Value format_fields(Interpreter& in, const Text& format, const Arguments& args, size_t* at_next,
                    int depth) {
  const std::string_view text = format.view();
  Text out;
  size_t& next = *at_next;
  size_t done = 0;
  for (size_t at = 0; at < text.size() && in.ok();) {
    const char c = text[at];
    if (c != '{' && c != '}') {
      ++at;
      continue;
    }
    out.append(format, done, at);
    if (at + 1 < text.size() && text[at + 1] == c) {
      out.append(format, at, at + 1);
      done = at += 2;
      continue;
    }
    const size_t end = field_end(text, at + 1);
    if (c == '}' || end == std::string_view::npos)
      return in.fail("unmatched brace in a format string");
    const std::string_view inside = text.substr(at + 1, end - at - 1);
    const size_t colon = std::min(inside.find(':'), inside.size());
    const size_t mark = std::min(inside.find('!'), colon);
    Value value = field_value(in, inside.substr(0, mark), args, &next);
    if (mark < colon) {
      const std::string_view how = inside.substr(mark + 1, colon - mark - 1);
      Text shown;
      how == "r" ? in.print_repr(value, &shown) : in.print(value, &shown);
      if (how != "r" && how != "s") return in.fail("unknown conversion in a format string");
      value = in.text(std::move(shown));
    }
    const std::string_view wanted = inside.substr(std::min(colon + 1, inside.size()));
    const bool nested = wanted.find('{') != std::string_view::npos;
    const Value filled = nested && depth == 0
                             ? format_fields(in, Text(wanted), args, &next, depth + 1)
                             : in.text(nested ? "{" : wanted);
    if (!in.ok()) return {};
    const Spec spec = read_spec(in, filled.string->text.view());
    if (!within(in, spec)) return {};
    const bool plain_int =
        value.is(Kind::kInt) && (spec.width > 0 || spec.group != '\0' || spec.sign != '\0');
    const bool number =
        value.is_number() && spec.letter != 's' && (spec.letter != '\0' || plain_int);
    const char align = spec.align != '\0' ? spec.align : value.is_number() ? '>' : '<';
    if (spec.letter == 'c') {
      append_character(in, value, spec, align, &out);
    } else if (number) {
      Spec named = spec;
      if (named.letter == '\0') named.letter = 'd';
      append_number(in, value, named, align, &out);
    } else if (spec.letter == '\0' || spec.letter == 's') {
      append_text(in, in.str(value), spec, align, &out);
    } else {
      return in.fail("unknown format code '%.1s' for %s", &spec.letter, type_name(value));
    }
    done = at = end + 1;
  }
  out.append(format, done, format.size());
  return in.text(std::move(out));
}

}  // namespace

Value brace_format(Interpreter& in, const Text& format, const Arguments& args) {
  size_t next = 0;
  return format_fields(in, format, args, &next, 0);
}

// Python's strftime in the C locale, in local time.
std::string strftime(std::time_t now, std::string_view format) {
  static constexpr std::string_view kPlain = "YymdeBbAaHIpMSjwuFTDcxXUWGgV%";
  const std::tm local = platform::local_time(now);
  std::string out;
  for (size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%' || at + 1 == format.size()) {
      out += format[at];
      continue;
    }
    const bool bare = format[at + 1] == '-' && at + 2 < format.size();  // without leading zeros
    const char letter = format[at + (bare ? 2 : 1)];
    if (letter == 'f') {
      out += "000000";
    } else if (letter == 'z' || letter == 'Z') {
      // datetime.now() has no time zone
    } else if (kPlain.find(letter) == std::string_view::npos) {
      out += format.substr(at, bare ? 3 : 2);
    } else {
      const char one[] = {'%', letter, '\0'};
      char text[80];
      size_t n = std::strftime(text, sizeof text, one, &local);
      size_t skip = 0;
      while (bare && skip + 1 < n && (text[skip] == '0' || text[skip] == ' ')) ++skip;
      out.append(text + skip, n - skip);
    }
    at += bare ? 2 : 1;
  }
  return out;
}

}  // namespace sluice::jinja

// Implements operators on values.
#include <algorithm>
#include <cmath>

#include "jinja/interpreter.h"

namespace sluice::jinja {
namespace {

// Appends text[begin, end), all of it shown by `span` or, if that is null, the template's own.
void append_escaped(const Text& text, size_t begin, size_t end, const Span* span, Text* out) {
  for (size_t at = begin; at < end; ++at) {
    const char c = text.view()[at];
    const std::string_view escape = c == '&'    ? "&amp;"
                                    : c == '<'  ? "&lt;"
                                    : c == '>'  ? "&gt;"
                                    : c == '\'' ? "&#39;"
                                    : c == '"'  ? "&#34;"
                                                : std::string_view();
    const std::string_view shown = escape.empty() ? std::string_view(&c, 1) : escape;
    span != nullptr ? out->append(shown, span->part(at, at + 1)) : out->append(shown);
  }
}

int64_t floor_div(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

Value repeated(Interpreter& in, const Value& value, int64_t count) {
  const bool is_text = value.is(Kind::kString);
  const size_t size = is_text ? value.string->text.size() : 16 * value.sequence->items.size();
  count = size == 0 ? 0 : std::max<int64_t>(count, 0);
  if (size > 0 && static_cast<uint64_t>(count) > kMaxText / size) {
    return in.fail("its output is too long");
  }
  Text text;
  std::vector<Value> items;
  for (int64_t i = 0; i < count; ++i) {
    if (is_text) {
      text.append(value.string->text);
    } else {
      for (const Value& each : value.sequence->items) items.push_back(each);
    }
  }
  if (is_text) return in.text(std::move(text), value.string->markup);
  return in.sequence(std::move(items), value.sequence->flavor);
}

Value power(Interpreter& in, const Value& a, const Value& b) {
  if (!a.is_whole() || !b.is_whole() || b.whole() < 0) return Value(std::pow(a.real(), b.real()));
  int64_t base = a.whole(), out = 1;
  bool beyond = false;
  for (int64_t n = b.whole(); n > 0 && !beyond; n >>= 1) {
    if ((n & 1) != 0) beyond = __builtin_mul_overflow(out, base, &out);
    if (n > 1 && __builtin_mul_overflow(base, base, &base)) beyond = true;
  }
  return beyond ? in.fail("an integer does not fit in 64 bits") : Value(out);
}

Value arithmetic(Interpreter& in, std::string_view op, const Value& a, const Value& b) {
  if (op == "**") return power(in, a, b);
  const bool divides = op == "/" || op == "//" || op == "%";
  if (divides && b.real() == 0) return in.fail("division by zero");
  if (op == "/") return Value(a.real() / b.real());
  if (a.is_whole() && b.is_whole()) {
    const int64_t x = a.whole(), y = b.whole();
    int64_t out = 0;
    bool beyond = divides && x == INT64_MIN && y == -1;
    if (op == "+") beyond = __builtin_add_overflow(x, y, &out);
    if (op == "-") beyond = __builtin_sub_overflow(x, y, &out);
    if (op == "*") beyond = __builtin_mul_overflow(x, y, &out);
    if (beyond) return in.fail("an integer does not fit in 64 bits");
    if (op == "//") out = floor_div(x, y);
    if (op == "%") out = x - floor_div(x, y) * y;
    return Value(out);
  }
  const double x = a.real(), y = b.real();
  if (op == "+") return Value(x + y);
  if (op == "-") return Value(x - y);
  if (op == "*") return Value(x * y);
  if (op == "//") return Value(std::floor(x / y));
  const double rest = std::fmod(x, y);
  return Value(rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest);
}

}  // namespace

Value Interpreter::add(const Value& a, const Value& b) {
  if (a.is(Kind::kString) && b.is(Kind::kString)) {
    const bool markup = a.string->markup || b.string->markup;
    Text out;
    for (const String* part : {a.string, b.string}) {
      if (!markup || part->markup) {
        out.append(part->text);
        continue;
      }
      size_t at = 0;
      for (const Span& span : part->text.spans()) {
        append_escaped(part->text, at, span.begin, nullptr, &out);
        append_escaped(part->text, span.begin, span.end, &span, &out);
        at = span.end;
      }
      append_escaped(part->text, at, part->text.size(), nullptr, &out);
    }
    return text(std::move(out), markup);
  }
  if (a.is(Kind::kString)) {
    return fail("can only concatenate str (not \"%s\") to str", type_name(b));
  }
  const bool lists = a.is(Kind::kSequence) && b.is(Kind::kSequence) &&
                     a.sequence->flavor == b.sequence->flavor &&
                     a.sequence->flavor <= Flavor::kTuple;
  if (!lists) {
    return fail("unsupported operand type(s) for +: '%s' and '%s'", type_name(a), type_name(b));
  }
  std::vector<Value> joined = a.sequence->items;
  for (const Value& each : b.sequence->items) joined.push_back(each);
  return sequence(std::move(joined), a.sequence->flavor);
}

Value Interpreter::binary(std::string_view op, const Value& a, const Value& b) {
  if (a.is(Kind::kUndefined)) return fail_undefined(a);
  if (op == "%" && a.is(Kind::kString)) return percent_format(*this, a.string->text, b);
  if (b.is(Kind::kUndefined)) return fail_undefined(b);
  if (a.is_number() && b.is_number()) return arithmetic(*this, op, a, b);
  if (op == "+") return add(a, b);
  const auto repeats = [](const Value& x, const Value& n) {
    const bool list = x.is(Kind::kSequence) && x.sequence->flavor <= Flavor::kTuple;
    return (x.is(Kind::kString) || list) && n.is_whole();
  };
  if (op == "*" && repeats(a, b)) return repeated(*this, a, b.whole());
  if (op == "*" && repeats(b, a)) return repeated(*this, b, a.whole());
  return fail("unsupported operand type(s) for %s: '%s' and '%s'", std::string(op).c_str(),
              type_name(a), type_name(b));
}

}  // namespace sluice::jinja

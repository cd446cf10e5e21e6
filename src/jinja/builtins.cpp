// Jinja's tests, and the lookup of filters and tests by name.
#include <algorithm>
#include <cstdio>

#include "jinja/interpreter.h"

namespace sluice::jinja {
namespace {

bool is_defined(Interpreter&, const Value& value, const Value*) {
  return !value.is(Kind::kUndefined);
}
bool is_undefined(Interpreter&, const Value& value, const Value*) {
  return value.is(Kind::kUndefined);
}
bool is_none(Interpreter&, const Value& value, const Value*) {
  return value.is(Kind::kNone);
}
bool is_boolean(Interpreter&, const Value& value, const Value*) {
  return value.is(Kind::kBool);
}
bool is_true(Interpreter&, const Value& value, const Value*) {
  return value.is(Kind::kBool) && value.boolean;
}
bool is_false(Interpreter&, const Value& value, const Value*) {
  return value.is(Kind::kBool) && !value.boolean;
}
bool is_integer(Interpreter&, const Value& value, const Value*) {
  return value.is(Kind::kInt) || is_integer_numeral(value);
}
bool is_float(Interpreter&, const Value& value, const Value*) {
  return value.is(Kind::kFloat) || (value.is(Kind::kNumeral) && !is_integer_numeral(value));
}
bool is_number(Interpreter&, const Value& value, const Value*) {
  return value.is_number() || value.is(Kind::kNumeral);
}
bool is_string(Interpreter&, const Value& value, const Value*) {
  return value.is(Kind::kString);
}
bool is_a_mapping(Interpreter&, const Value& value, const Value*) {
  return is_mapping(value);
}
bool is_iterable(Interpreter&, const Value& value, const Value*) {
  return value.is(Kind::kUndefined) || value.is(Kind::kString) || value.is(Kind::kBytes) ||
         value.is(Kind::kSequence) || value.is(Kind::kDict) || value.is(Kind::kLoop);
}
bool is_sequence(Interpreter&, const Value& value, const Value*) {
  if (value.is(Kind::kSequence)) {
    return value.sequence->flavor <= Flavor::kTuple || value.sequence->flavor == Flavor::kRange;
  }
  return value.is(Kind::kUndefined) || value.is(Kind::kString) || value.is(Kind::kBytes) ||
         value.is(Kind::kDict);
}
bool is_callable(Interpreter&, const Value& value, const Value*) {
  return value.is(Kind::kMacro) || value.is(Kind::kMethod) || value.is(Kind::kFunction) ||
         value.is(Kind::kLoop) || value.is(Kind::kUndefined) ||
         (value.is(Kind::kCycler) && value.cycler->joins);
}
bool is_escaped(Interpreter&, const Value& value, const Value*) {
  return value.is(Kind::kString) && value.string->markup;
}

bool of_case(Interpreter& in, const Value& value, const char* method) {
  const Value text = in.text(in.str(value));
  return in.ok() && in.truth(call_string_method(in, text, method, {}));
}
bool is_lower(Interpreter& in, const Value& value, const Value*) {
  return of_case(in, value, "islower");
}
bool is_upper(Interpreter& in, const Value& value, const Value*) {
  return of_case(in, value, "isupper");
}

bool is_even(Interpreter& in, const Value& value, const Value*) {
  return in.equal(in.binary("%", value, Value(int64_t{2})), Value(int64_t{0}));
}
bool is_odd(Interpreter& in, const Value& value, const Value*) {
  return in.equal(in.binary("%", value, Value(int64_t{2})), Value(int64_t{1}));
}

// --- tests with an argument

bool is_divisible(Interpreter& in, const Value& value, const Value* other) {
  return in.equal(in.binary("%", value, *other), Value(int64_t{0}));
}
bool is_equal(Interpreter& in, const Value& a, const Value* b) {
  return in.equal(a, *b);
}
bool is_unequal(Interpreter& in, const Value& a, const Value* b) {
  return !in.equal(a, *b);
}
bool is_less(Interpreter& in, const Value& a, const Value* b) {
  return in.less(a, *b);
}
bool is_greater(Interpreter& in, const Value& a, const Value* b) {
  return in.less(*b, a);
}
bool is_at_most(Interpreter& in, const Value& a, const Value* b) {
  return !in.less(*b, a);
}
bool is_at_least(Interpreter& in, const Value& a, const Value* b) {
  return !in.less(a, *b);
}
bool is_in(Interpreter& in, const Value& a, const Value* b) {
  return in.contains(*b, a);
}
bool is_same(Interpreter& in, const Value& a, const Value* b) {
  if (a.kind != b->kind) return false;
  const bool small =
      a.is_number() || a.is(Kind::kNumeral) || a.is(Kind::kNone) || a.is(Kind::kUndefined);
  return small ? in.equal(a, *b) : a.dict == b->dict;
}
Filter find_filter(std::string_view name) {
  if (const Filter found = find_text_filter(name)) return found;
  if (const Filter found = find_sequence_filter(name)) return found;
  return find_layout_filter(name);
}
bool is_filter(Interpreter&, const Value& value, const Value*) {
  if (!value.is(Kind::kString)) return false;
  const std::string_view name = value.string->text.view();
  return find_filter(name) != nullptr;
}
bool is_test(Interpreter&, const Value& value, const Value*) {
  return value.is(Kind::kString) && find_test(value.string->text.view()) != nullptr;
}

struct NamedTest {
  std::string_view name;
  Test test;
  bool of_two = false;
};

constexpr NamedTest kTests[] = {
    {"defined", is_defined},
    {"undefined", is_undefined},
    {"none", is_none},
    {"boolean", is_boolean},
    {"true", is_true},
    {"false", is_false},
    {"integer", is_integer},
    {"float", is_float},
    {"number", is_number},
    {"string", is_string},
    {"mapping", is_a_mapping},
    {"iterable", is_iterable},
    {"sequence", is_sequence},
    {"callable", is_callable},
    {"escaped", is_escaped},
    {"lower", is_lower},
    {"upper", is_upper},
    {"even", is_even},
    {"odd", is_odd},
    {"filter", is_filter},
    {"test", is_test},
    {"divisibleby", is_divisible, true},
    {"==", is_equal, true},
    {"eq", is_equal, true},
    {"equalto", is_equal, true},
    {"!=", is_unequal, true},
    {"ne", is_unequal, true},
    {"<", is_less, true},
    {"lt", is_less, true},
    {"lessthan", is_less, true},
    {">", is_greater, true},
    {"gt", is_greater, true},
    {"greaterthan", is_greater, true},
    {"<=", is_at_most, true},
    {"le", is_at_most, true},
    {">=", is_at_least, true},
    {"ge", is_at_least, true},
    {"in", is_in, true},
    {"sameas", is_same, true},
};

const NamedTest* find_named_test(std::string_view name) {
  for (const NamedTest& each : kTests) {
    if (each.name == name) return &each;
  }
  return nullptr;
}

}  // namespace

Test find_test(std::string_view name) {
  const NamedTest* found = find_named_test(name);
  return found != nullptr ? found->test : nullptr;
}

bool Interpreter::test(std::string_view name, const Value& operand, const Arguments& args) {
  const std::string shown(name.substr(0, 80));
  const NamedTest* found = find_named_test(name);
  if (found == nullptr) {
    fail("No test named '%s'.", shown.c_str());
    return false;
  }
  const size_t expected = found->of_two ? 1 : 0;
  if (args.places.size() != expected || !args.names.empty()) {
    fail("the test %s takes %zu argument(s)", shown.c_str(), expected);
    return false;
  }
  return found->test(*this, operand, expected == 1 ? &args.places[0] : nullptr) && ok();
}

Value Interpreter::filter(std::string_view name, const Value& operand, const Arguments& args) {
  const Deeper deeper(this);
  if (!ok()) return {};
  const Filter found = find_filter(name);
  if (found == nullptr)
    return fail("No filter named '%s'.", std::string(name.substr(0, 80)).c_str());
  const Value out = found(*this, operand, args);
  return ok() ? out : Value();
}

Bound bind(Interpreter& in, const char* callee, const Arguments& args, std::string_view names) {
  Bound out{};
  std::array<std::string_view, std::tuple_size_v<Bound>> parameters;
  size_t n = 0;
  for (size_t at = 0; at < names.size(); ++n) {
    const size_t end = std::min(names.find(' ', at), names.size());
    parameters[n] = names.substr(at, end - at);
    at = end + 1;
  }
  if (args.places.size() > n) {
    in.fail("%s() takes at most %zu arguments", callee, n);
    return out;
  }
  for (size_t i = 0; i < args.places.size(); ++i) out[i] = &args.places[i];
  for (const auto& [name, value] : args.names) {
    size_t i = 0;
    while (i < n && parameters[i] != name) ++i;
    if (i == n || out[i] != nullptr) {
      in.fail("%s() got an unexpected keyword argument '%s'", callee, std::string(name).c_str());
      return out;
    }
    out[i] = &value;
  }
  return out;
}

bool is_mapping(const Value& value) {
  return value.is(Kind::kDict);
}

int64_t whole_or(Interpreter& in, const Value* value, int64_t fallback) {
  if (value == nullptr || value->is(Kind::kNone)) return fallback;
  if (value->is_whole()) return value->whole();
  in.fail("'%s' object cannot be interpreted as an integer", type_name(*value));
  return fallback;
}

}  // namespace sluice::jinja

// Evaluates expressions.
#include <algorithm>
#include <cmath>

#include "base/concat.h"
#include "jinja/interpreter.h"

namespace sluice::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;

}  // namespace

Value Interpreter::evaluate(const Node& node, Scope* scope) {
  const Deeper deeper(this);
  if (!ok()) return {};
  line_ = node.line;
  switch (node.kind) {
    case NodeKind::kLiteral:
      return Value(node.literal);
    case NodeKind::kConstant:
      return node.constant;
    case NodeKind::kName:
      return look_up(node, scope);
    case NodeKind::kCaptured:
      return captured_;
    case NodeKind::kList:
      return sequence(all(node.operands, scope));
    case NodeKind::kTuple:
      return sequence(all(node.operands, scope), Flavor::kTuple);
    case NodeKind::kDict:
      return dict(node, scope);
    case NodeKind::kCondition:
      if (truth(evaluate(*node.second, scope))) return evaluate(*node.first, scope);
      return node.third != nullptr ? evaluate(*node.third, scope) : Value();
    case NodeKind::kAnd: {
      const Value left = evaluate(*node.first, scope);
      return truth(left) ? evaluate(*node.second, scope) : left;
    }
    case NodeKind::kOr: {
      const Value left = evaluate(*node.first, scope);
      return truth(left) ? left : evaluate(*node.second, scope);
    }
    case NodeKind::kNot:
      return Value(!truth(evaluate(*node.first, scope)));
    case NodeKind::kCompare:
      return compare(node, scope);
    case NodeKind::kConcat: {
      Text joined;
      for (const Value& value : all(node.operands, scope)) print(value, &joined);
      return text(std::move(joined));
    }
    case NodeKind::kBinary: {
      const Value left = evaluate(*node.first, scope);
      const Value right = evaluate(*node.second, scope);
      return ok() ? binary(node.text, left, right) : Value();
    }
    case NodeKind::kNegate:
      return negated(evaluate(*node.first, scope));
    case NodeKind::kPositive: {
      const Value value = evaluate(*node.first, scope);
      if (value.is_number()) return value.is(Kind::kBool) ? Value(value.whole()) : value;
      return fail("bad operand type for unary +: '%s'", type_name(value));
    }
    case NodeKind::kAttribute:
      return attribute(evaluate(*node.first, scope), node.text);
    case NodeKind::kItem: {
      const Value value = evaluate(*node.first, scope);
      return item(value, evaluate(*node.second, scope));
    }
    case NodeKind::kSlice:
      return slice(node, scope);
    case NodeKind::kCall: {
      const Value callee = evaluate(*node.first, scope);
      const Arguments args = arguments(node, scope);
      return ok() ? call(callee, args) : Value();
    }
    case NodeKind::kFilter: {
      const Value operand = evaluate(*node.first, scope);
      const Arguments args = arguments(node, scope);
      return ok() ? filter(node.text, operand, args) : Value();
    }
    case NodeKind::kTest: {
      const Value operand = evaluate(*node.first, scope);
      const Arguments args = arguments(node, scope);
      return ok() ? Value(test(node.text, operand, args)) : Value();
    }
    default:
      return {};
  }
}

std::vector<Value> Interpreter::all(const Nodes& nodes, Scope* scope) {
  std::vector<Value> out;
  for (const Node* node : nodes) out.push_back(evaluate(*node, scope));
  return out;
}

Value Interpreter::look_up(const Node& node, Scope* scope) {
  for (; scope != nullptr; scope = scope->outer) {
    spend(scope->variables.size() / 4 + 1);
    for (const auto& [name, value] : scope->variables) {
      if (name == node.name) return value;
    }
  }
  return undefined(concat({"'", node.text, "' is undefined"}));
}

Value Interpreter::dict(const Node& node, Scope* scope) {
  auto* out = make<Dict>();
  for (size_t i = 0; i + 1 < node.operands.size(); i += 2) {
    const Value key = evaluate(*node.operands[i], scope);
    put(out, key, evaluate(*node.operands[i + 1], scope));
  }
  return Value(out);
}

Arguments Interpreter::arguments(const Node& node, Scope* scope) {
  Arguments out;
  for (const Argument& argument : node.arguments) {
    const Value value = evaluate(*argument.value, scope);
    if (argument.pass == Pass::kByPlace) {
      out.places.push_back(value);
    } else if (argument.pass == Pass::kByName) {
      out.names.emplace_back(argument.name, value);
    } else if (argument.pass == Pass::kList) {
      for (const Value& each : items(value)) out.places.push_back(each);
    } else if (!is_mapping(value)) {
      fail("argument after ** must be a mapping, not %s", type_name(value));
    } else {
      for (const auto& [key, each] : value.dict->entries) {
        if (!key.is(Kind::kString)) fail("keywords must be strings");
        if (ok()) out.names.emplace_back(key.string->text.view(), each);
      }
    }
  }
  return out;
}

// Chained comparison a < b <= c: true if all comparisons hold. Stops at the first false one.
Value Interpreter::compare(const Node& node, Scope* scope) {
  Value left = evaluate(*node.first, scope);
  for (const Argument& argument : node.arguments) {
    const Value right = evaluate(*argument.value, scope);
    if (!ok() || !compare(argument.name, left, right)) return Value(false);
    left = right;
  }
  return Value(true);
}

bool Interpreter::compare(std::string_view op, const Value& a, const Value& b) {
  if (op == "==") return equal(a, b);
  if (op == "!=") return !equal(a, b);
  if (op == "in") return contains(b, a);
  if (op == "not in") return !contains(b, a);
  if (op == "<") return less(a, b);
  if (op == ">") return less(b, a);
  const bool real =
      (a.is(Kind::kFloat) && std::isnan(a.number)) || (b.is(Kind::kFloat) && std::isnan(b.number));
  const bool greater = op == "<=" ? less(b, a) : less(a, b);
  return !greater && !real;
}

Value Interpreter::negated(const Value& value) {
  if (value.is(Kind::kUndefined)) return fail_undefined(value);
  if (value.is(Kind::kFloat)) return Value(-value.number);
  if (value.is(Kind::kNumeral)) {
    const Text& digits = value.string->text;
    const bool negative = digits.view().starts_with('-');
    Text other(negative ? "" : "-");
    other.append(digits, negative ? 1 : 0, digits.size());
    Value out = text(std::move(other));
    out.kind = Kind::kNumeral;
    return out;
  }
  if (!value.is_whole()) return fail("bad operand type for unary -: '%s'", type_name(value));
  return binary("-", Value(int64_t{0}), value);
}

Value Interpreter::slice(const Node& node, Scope* scope) {
  const Value value = evaluate(*node.first, scope);
  if (value.is(Kind::kUndefined)) return fail_undefined(value);
  const auto bound = [&](const Node* part) {
    const Value given = part != nullptr ? evaluate(*part, scope) : none();
    if (!given.is(Kind::kNone) && !given.is_whole()) {
      fail("slice indices must be integers or None");
    }
    return given;
  };
  const Value from = bound(node.second), to = bound(node.third), by = bound(node.fourth);
  const int64_t step = by.is(Kind::kNone) ? 1 : by.whole();
  const bool text_slice = value.is(Kind::kString);
  const bool sliced = value.is(Kind::kSequence) && (value.sequence->flavor <= Flavor::kTuple ||
                                                    value.sequence->flavor == Flavor::kRange);
  if (value.is(Kind::kBytes)) return fail("bytes can only be decoded");
  if (!text_slice && !sliced) {
    return ok() ? undefined(concat({type_name(value), " object cannot be sliced"})) : Value();
  }
  if (step == 0) fail("slice step cannot be zero");
  if (!ok()) return {};
  const std::string_view bytes = text_slice ? value.string->text.view() : std::string_view();
  spend(bytes.size());
  const auto n =
      static_cast<int64_t>(text_slice ? count_characters(bytes) : value.sequence->items.size());
  const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
  const auto placed = [&](const Value& given, int64_t otherwise) {
    if (given.is(Kind::kNone)) return otherwise;
    const int64_t at = given.whole();
    return std::clamp(at < 0 ? at + n : at, low, high);
  };
  const int64_t begin = placed(from, step > 0 ? low : high);
  const int64_t end = placed(to, step > 0 ? high : low);
  if (text_slice && step == 1) {
    const size_t first = character_offset(bytes, static_cast<size_t>(begin));
    const auto length = static_cast<size_t>(std::max<int64_t>(end - begin, 0));
    const size_t last = first + character_offset(bytes.substr(first), length);
    return text(value.string->text.slice(first, last), value.string->markup);
  }
  const std::vector<Value> parts = items(value);
  std::vector<Value> kept;
  const int64_t stride = std::clamp(step, -n - 1, n + 1);
  for (int64_t i = begin; stride > 0 ? i < end : i > end; i += stride) {
    kept.push_back(parts[static_cast<size_t>(i)]);
  }
  if (!text_slice) return sequence(std::move(kept), value.sequence->flavor);
  Text joined;
  for (const Value& part : kept) joined.append(part.string->text);
  return text(std::move(joined), value.string->markup);
}

// --- calls

Value Interpreter::call(const Value& callee, const Arguments& args) {
  const Deeper deeper(this);
  if (!ok()) return {};
  switch (callee.kind) {
    case Kind::kMacro:
      return call_macro(*callee.macro, args);
    case Kind::kMethod:
      return call_method(*this, *callee.method, args);
    case Kind::kFunction:
      return call_function(callee.function, args);
    case Kind::kUndefined:
      return fail_undefined(callee);
    case Kind::kLoop: {
      Loop* loop = callee.loop;
      if (!loop->node->recursive || args.places.size() != 1) {
        return fail("loop() needs a recursive for loop and exactly one sequence");
      }
      Text own;
      Text* outer = std::exchange(out_, &own);
      execute_for(*loop->node, loop->scope, args.places[0], loop->depth + 1);
      out_ = outer;
      return text(std::move(own));
    }
    case Kind::kCycler:
      if (callee.cycler->joins) {
        (void)bind(*this, "joiner", args, "");
        return callee.cycler->next++ == 0 ? text("") : callee.cycler->items[0];
      }
      [[fallthrough]];
    default:
      return fail("'%s' object is not callable", type_name(callee));
  }
}

Value Interpreter::call_function(Function function, const Arguments& args) {
  switch (function) {
    case Function::kRange: {
      const auto a = bind(*this, "range", args, "start stop step");
      if (args.places.empty()) return fail("range expected at least 1 argument, got 0");
      const int64_t first = whole_or(*this, a[0], 0), step = whole_or(*this, a[2], 1);
      const int64_t start = a[1] != nullptr ? first : 0;
      const int64_t stop = a[1] != nullptr ? whole_or(*this, a[1], 0) : first;
      if (step == 0) return fail("range() arg 3 must not be zero");
      std::vector<Value> values;
      for (int64_t at = start; step > 0 ? at < stop : at > stop;) {
        if (values.size() == kMaxRange) return fail("range() is too long");
        values.emplace_back(at);
        if (__builtin_add_overflow(at, step, &at)) break;
      }
      return ok() ? sequence(std::move(values), Flavor::kRange) : Value();
    }
    case Function::kDict:
    case Function::kNamespace: {
      auto* out = make<Dict>();
      for (const Value& given : args.places) {
        if (given.is(Kind::kSequence)) {
          for (const Value& each : items(given)) {
            const std::vector<Value> pair = items(each);
            if (pair.size() != 2) return fail("dictionary update sequence needs pairs");
            put(out, pair[0], pair[1]);
          }
          continue;
        }
        if (!is_mapping(given)) return fail("'%s' object is not a mapping", type_name(given));
        for (const auto& [key, value] : given.dict->entries) put(out, key, value);
      }
      for (const auto& [key, value] : args.names) put(out, text(key), value);
      Value made(out);
      if (function == Function::kNamespace) made.kind = Kind::kNamespace;
      return made;
    }
    case Function::kCycler: {
      if (!args.names.empty()) return fail("cycler() takes no keyword arguments");
      if (args.places.empty()) return fail("at least one item has to be provided");
      auto* cycler = make<Cycler>();
      cycler->items = args.places;
      return Value(cycler);
    }
    case Function::kJoiner: {
      const auto a = bind(*this, "joiner", args, "sep");
      auto* joiner = make<Cycler>();
      joiner->items.push_back(a[0] != nullptr ? *a[0] : text(", "));
      joiner->joins = true;
      return Value(joiner);
    }
    case Function::kRaise: {
      const auto a = bind(*this, "raise_exception", args, "message");
      const Text message = a[0] != nullptr ? str(*a[0]) : Text();
      return fail("%s", std::string(message.view()).c_str());
    }
    case Function::kStrftime: {
      const auto a = bind(*this, "strftime_now", args, "format");
      if (a[0] == nullptr || !a[0]->is(Kind::kString))
        return fail("strftime_now() needs a format string");
      return text(strftime(now_, a[0]->string->text.view()));
    }
  }
  return {};
}

}  // namespace sluice::jinja

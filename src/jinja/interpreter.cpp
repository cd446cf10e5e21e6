// Executes statements: output and scopes.
#include "jinja/interpreter.h"

#include "base/concat.h"

namespace sluice::jinja {

void Interpreter::set(const std::string& name, Value value) {
  const auto found = program_.names.find(name);
  if (found != program_.names.end()) define(&root_, found->second, value);
}

Result<Text> Interpreter::run() {
  const std::pair<const char*, Function> functions[] = {
      {"range", Function::kRange},           {"dict", Function::kDict},
      {"namespace", Function::kNamespace},   {"raise_exception", Function::kRaise},
      {"strftime_now", Function::kStrftime}, {"cycler", Function::kCycler},
      {"joiner", Function::kJoiner}};
  Scope given(nullptr);
  std::swap(given.variables, root_.variables);
  for (const auto& [name, function] : functions) set(name, Value(function));
  for (const auto& [name, value] : given.variables) define(&root_, name, value);
  execute(program_.body, &root_);
  if (!ok()) return failure();
  return std::move(output_);
}

void Interpreter::write(const Value& value) {
  const size_t before = out_->size();
  print(value, out_);
  spend(out_->size() - before);
  if (out_->size() > kMaxText) fail("its output is too long");
}

Interpreter::Flow Interpreter::execute(const Nodes& nodes, Scope* scope) {
  for (const Node* node : nodes) {
    const Flow flow = execute_one(*node, scope);
    if (!ok()) return Flow::kBreak;
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute_one(const Node& node, Scope* scope) {
  const Deeper deeper(this);
  line_ = node.line;
  switch (node.kind) {
    case NodeKind::kData:
      write(Value(node.literal));
      break;
    case NodeKind::kPrint:
      write(evaluate(*node.first, scope));
      break;
    case NodeKind::kIf:
      return execute_if(node, scope);
    case NodeKind::kFor:
      execute_for(node, scope, evaluate(*node.second, scope), 1);
      break;
    case NodeKind::kSet:
      assign(*node.first, evaluate(*node.second, scope), scope);
      break;
    case NodeKind::kSetBlock: {
      Value value = captured(node.bodies[0], scope);
      if (node.second != nullptr) {
        captured_ = value;
        value = evaluate(*node.second, scope);
      }
      assign(*node.first, value, scope);
      break;
    }
    case NodeKind::kMacro:
      define(scope, node.name, Value(make_macro(node, scope)));
      break;
    case NodeKind::kCallBlock:
      execute_call(node, scope);
      break;
    case NodeKind::kFilterBlock:
      captured_ = captured(node.bodies[0], scope);
      write(evaluate(*node.first, scope));
      break;
    case NodeKind::kWith:
      execute_with(node, scope);
      break;
    case NodeKind::kBlock:
      write(captured(node.bodies[0], scope));
      break;
    case NodeKind::kBreak:
      return Flow::kBreak;
    case NodeKind::kContinue:
      return Flow::kContinue;
    default:
      break;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute_if(const Node& node, Scope* scope) {
  for (size_t i = 0; i < node.operands.size(); ++i) {
    if (truth(evaluate(*node.operands[i], scope))) return execute(node.bodies[i], scope);
    if (!ok()) return Flow::kBreak;
  }
  const bool otherwise = node.bodies.size() > node.operands.size();
  return otherwise ? execute(node.bodies.back(), scope) : Flow::kNext;
}

void Interpreter::execute_for(const Node& node, Scope* scope, const Value& sequence,
                              int64_t depth) {
  std::vector<Value> all = items(sequence);
  if (node.third != nullptr) {
    std::vector<Value> kept;
    for (const Value& value : all) {
      auto* inner = make<Scope>(scope);
      assign(*node.first, value, inner);
      if (truth(evaluate(*node.third, inner))) kept.push_back(value);
      if (!ok()) return;
    }
    all = std::move(kept);
  }
  if (all.empty()) {
    if (node.bodies.size() > 1) execute(node.bodies[1], make<Scope>(scope));
    return;
  }
  const auto name = program_.names.find("loop");
  auto* loop = make<Loop>();
  loop->node = &node;
  loop->scope = scope;
  loop->items = std::move(all);
  loop->depth = depth;
  for (; loop->index < loop->items.size() && ok(); ++loop->index) {
    auto* inner = make<Scope>(scope);
    assign(*node.first, loop->items[loop->index], inner);
    if (name != program_.names.end()) define(inner, name->second, Value(loop));
    if (execute(node.bodies[0], inner) == Flow::kBreak) break;
  }
}

void Interpreter::execute_with(const Node& node, Scope* scope) {
  auto* inner = make<Scope>(scope);
  for (size_t i = 0; i + 1 < node.operands.size(); i += 2) {
    assign(*node.operands[i], evaluate(*node.operands[i + 1], scope), inner);
  }
  execute(node.bodies[0], inner);
}

// {% call(a, b) f(x) %} … {% endcall %}: calls f with its body as the function `caller`.
void Interpreter::execute_call(const Node& node, Scope* scope) {
  const Value callee = evaluate(*node.first->first, scope);
  Arguments args = arguments(*node.first, scope);
  args.names.emplace_back("caller", Value(make_macro(node, scope)));
  if (ok()) write(call(callee, args));
}

Value Interpreter::captured(const Nodes& body, Scope* scope) {
  Text own;
  Text* outer = std::exchange(out_, &own);
  execute(body, make<Scope>(scope));
  out_ = outer;
  return text(std::move(own));
}

void Interpreter::define(Scope* scope, uint32_t name, const Value& value) {
  spend(scope->variables.size() / 4 + 1);
  for (auto& [known, old] : scope->variables) {
    if (known == name) {
      old = value;
      return;
    }
  }
  scope->variables.emplace_back(name, value);
}

void Interpreter::assign(const Node& target, const Value& value, Scope* scope) {
  if (!ok()) return;
  if (target.kind == NodeKind::kName) return define(scope, target.name, value);
  if (target.kind == NodeKind::kAttribute) {
    const Value owner = evaluate(*target.first, scope);
    if (!owner.is(Kind::kNamespace)) {
      fail("cannot assign attribute on non-namespace object");
    } else {
      put(owner.dict, text(target.text), value);
    }
    return;
  }
  const std::vector<Value> parts = items(value);
  const size_t expected = target.operands.size();
  if (!ok()) return;
  if (parts.size() < expected) {
    fail("not enough values to unpack (expected %zu, got %zu)", expected, parts.size());
  } else if (parts.size() > expected) {
    fail("too many values to unpack (expected %zu)", expected);
  }
  for (size_t i = 0; i < expected && ok(); ++i) assign(*target.operands[i], parts[i], scope);
}

// --- macros

Macro* Interpreter::make_macro(const Node& node, Scope* scope) {
  auto* macro = make<Macro>();
  macro->node = &node;
  macro->scope = scope;
  return macro;
}

Value Interpreter::call_macro(const Macro& macro, const Arguments& args) {
  const Deeper deeper(this);
  if (!ok()) return {};
  auto* scope = make<Scope>(macro.scope);
  bind_parameters(macro, args, scope);
  return captured(macro.node->bodies[0], scope);
}

void Interpreter::bind_parameters(const Macro& macro, const Arguments& args, Scope* scope) {
  const std::vector<Argument>& parameters = macro.node->arguments;
  const std::string& name = macro.node->text;
  std::vector<Value> extra;
  Dict* rest = make<Dict>();
  for (const auto& [key, value] : args.names) {
    bool known = key == "caller";
    for (const Argument& parameter : parameters) known = known || parameter.name == key;
    if (!known) put(rest, text(key), value);
  }
  for (size_t i = parameters.size(); i < args.places.size(); ++i) extra.push_back(args.places[i]);
  const auto caller = program_.names.find("caller");
  for (const auto& [key, value] : args.names) {
    if (key == "caller" && caller != program_.names.end()) define(scope, caller->second, value);
  }
  const auto varargs = program_.names.find("varargs");
  const auto kwargs = program_.names.find("kwargs");
  if (!extra.empty() && varargs == program_.names.end()) {
    fail("macro '%s' takes not more than %zu argument(s)", name.c_str(), parameters.size());
  }
  if (!rest->entries.empty() && kwargs == program_.names.end()) {
    fail("macro '%s' takes no keyword argument '%s'", name.c_str(),
         std::string(rest->entries[0].first.string->text.view()).c_str());
  }
  if (varargs != program_.names.end()) {
    define(scope, varargs->second, sequence(std::move(extra), Flavor::kTuple));
  }
  if (kwargs != program_.names.end()) define(scope, kwargs->second, Value(rest));
  for (size_t i = 0; i < parameters.size() && ok(); ++i) {
    const Argument& parameter = parameters[i];
    Value value;
    bool given = i < args.places.size();
    if (given) value = args.places[i];
    for (const auto& [key, named] : args.names) {
      if (key != parameter.name) continue;
      if (given) fail("macro '%s' got two values for '%s'", name.c_str(), parameter.name.c_str());
      value = named;
      given = true;
    }
    if (!given && parameter.value != nullptr) {
      value = evaluate(*parameter.value, scope);
    } else if (!given) {
      value = undefined(concat({"parameter '", parameter.name, "' was not provided"}));
    }
    define(scope, parameter.variable, value);
  }
}

}  // namespace sluice::jinja

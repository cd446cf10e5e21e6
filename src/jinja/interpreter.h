// Runs a parsed template as Python's jinja2 does in the environment of transformers: sandboxed,
// without autoescape, with trim_blocks and lstrip_blocks. One interpreter renders once and owns all
// values (values.h). Its limits hold for the whole rendering.
#pragma once

#include <array>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "jinja/program.h"
#include "jinja/values.h"

namespace sluice::jinja {

// Arguments of one call of a function, macro, filter or test.
struct Arguments {
  std::vector<Value> places;
  std::vector<std::pair<std::string_view, Value>> names;
};

class Interpreter : public Values {
 public:
  // `share`: the limits of steps and work are divided by it.
  Interpreter(const Program& program, std::time_t now, uint32_t share = 1)
      : Values(share), program_(program), now_(now) {}

  // Sets a variable of the template. A variable that the template does not mention is dropped.
  void set(const std::string& name, Value value);
  // Renders the template and returns all output. Errors: kChatTemplate.
  [[nodiscard]] Result<Text> run();

  // value.name and value[key], methods included. Undefined if missing.
  [[nodiscard]] Value attribute(const Value& value, std::string_view name);
  [[nodiscard]] Value item(const Value& value, const Value& key);
  // Looks up a path such as "a.b.0", as filters with attribute= do. `otherwise`, unless null,
  // replaces a value that is missing at any step.
  [[nodiscard]] Value path(const Value& value, const Value& path, const Value* otherwise = nullptr);
  [[nodiscard]] Value filter(std::string_view name, const Value& operand, const Arguments& args);
  [[nodiscard]] bool test(std::string_view name, const Value& operand, const Arguments& args);
  [[nodiscard]] Value call(const Value& callee, const Arguments& args);
  [[nodiscard]] Value binary(std::string_view op, const Value& a, const Value& b);
  [[nodiscard]] Value add(const Value& a, const Value& b);

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  // --- statements (interpreter.cpp)
  using Nodes = std::vector<Node*>;
  Flow execute(const Nodes& nodes, Scope* scope);
  Flow execute_one(const Node& node, Scope* scope);
  Flow execute_if(const Node& node, Scope* scope);
  void execute_for(const Node& node, Scope* scope, const Value& sequence, int64_t depth);
  void execute_with(const Node& node, Scope* scope);
  void execute_call(const Node& node, Scope* scope);
  // The output of a body, executed in its own scope.
  [[nodiscard]] Value captured(const Nodes& body, Scope* scope);
  void write(const Value& value);
  void assign(const Node& target, const Value& value, Scope* scope);
  void define(Scope* scope, uint32_t name, const Value& value);
  Macro* make_macro(const Node& node, Scope* scope);
  [[nodiscard]] Value call_macro(const Macro& macro, const Arguments& args);
  void bind_parameters(const Macro& macro, const Arguments& args, Scope* scope);

  // --- expressions (evaluate.cpp)
  [[nodiscard]] Value evaluate(const Node& node, Scope* scope);
  [[nodiscard]] Value look_up(const Node& node, Scope* scope);
  [[nodiscard]] Value compare(const Node& node, Scope* scope);
  [[nodiscard]] bool compare(std::string_view op, const Value& a, const Value& b);
  [[nodiscard]] Value slice(const Node& node, Scope* scope);
  [[nodiscard]] Value dict(const Node& node, Scope* scope);
  [[nodiscard]] Arguments arguments(const Node& node, Scope* scope);
  [[nodiscard]] std::vector<Value> all(const Nodes& nodes, Scope* scope);
  [[nodiscard]] Value negated(const Value& value);
  [[nodiscard]] Value loop_attribute(Loop* loop, std::string_view name);
  [[nodiscard]] Value call_function(Function function, const Arguments& args);

  const Program& program_;
  const std::time_t now_;
  Scope root_{nullptr};
  Text output_;
  Text* out_ = &output_;
  Value captured_;  // input of a block's filter
};

// Binds the arguments of a builtin to parameters, whose names `names` has with spaces between; null
// if omitted. "/" is a parameter without a name. Fails as Python does.
using Bound = std::array<const Value*, 4>;
[[nodiscard]] Bound bind(Interpreter& in, const char* callee, const Arguments& args,
                         std::string_view names);

// The integer value of a bound argument, or `fallback` if it is omitted or None.
[[nodiscard]] int64_t whole_or(Interpreter& in, const Value* value, int64_t fallback);

[[nodiscard]] bool is_mapping(const Value& value);
[[nodiscard]] std::string strftime(std::time_t now, std::string_view format);
// Whether the value's type has a method of this name.
[[nodiscard]] bool has_method(const Value& value, std::string_view name);
[[nodiscard]] Value call_method(Interpreter& in, const Method& method, const Arguments& args);
[[nodiscard]] Value call_string_method(Interpreter& in, const Value& self, std::string_view name,
                                       const Arguments& args);
[[nodiscard]] bool has_string_method(std::string_view name);
[[nodiscard]] Value encode(Interpreter& in, const Value& text, const Arguments& args);
[[nodiscard]] Value call_bytes_method(Interpreter& in, const Value& self, std::string_view name,
                                      const Arguments& args);
// "%s" % values, and "{}".format(…).
[[nodiscard]] Value percent_format(Interpreter& in, const Text& format, const Value& values);
[[nodiscard]] Value brace_format(Interpreter& in, const Text& format, const Arguments& args);

// Filters and tests by name; null if unknown.
using Filter = Value (*)(Interpreter& in, const Value& operand, const Arguments& args);
struct NamedFilter {
  std::string_view name;
  Filter filter;
};
[[nodiscard]] Value pprint(Interpreter& in, const Value& operand, const Arguments& args);
[[nodiscard]] Filter find_text_filter(std::string_view name);
[[nodiscard]] Filter find_sequence_filter(std::string_view name);
[[nodiscard]] Filter find_layout_filter(std::string_view name);
using Test = bool (*)(Interpreter& in, const Value& operand, const Value* other);
[[nodiscard]] Test find_test(std::string_view name);

}  // namespace sluice::jinja

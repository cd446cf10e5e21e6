// Runs a parsed template as Python's jinja2 does in the environment of transformers: sandboxed,
// without autoescape, with trim_blocks and lstrip_blocks. One interpreter renders once and owns all
// values. Templates are untrusted, so steps, nesting, text and work are limited. The first failure
// is kept (failure()); everything after it has no effect.
#pragma once

#include <array>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "jinja/program.h"

namespace sluice::jinja {

inline constexpr size_t kMaxText = 1u << 24;  // bytes of one string, and of all output

// Arguments of one call of a function, macro, filter or test.
struct Arguments {
  std::vector<Value> places;
  std::vector<std::pair<std::string_view, Value>> names;
};

class Interpreter {
 public:
  // `share`: the limits of steps and work are divided by it.
  Interpreter(const Program& program, std::time_t now, uint32_t share = 1)
      : program_(program), now_(now), share_(share) {}
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Sets a variable of the template. A variable that the template does not mention is dropped.
  void set(const std::string& name, Value value);
  // Renders the template and returns all output. Errors: kChatTemplate.
  [[nodiscard]] Result<Text> run();

  // --- helpers for values (values.cpp)
  Value fail(const char* format, ...) __attribute__((format(SLUICE_PRINTF, 2, 3)));
  // Fails with the message stored in an undefined value.
  Value fail_undefined(const Value& value);
  [[nodiscard]] bool ok() const { return status_.ok(); }
  [[nodiscard]] const Status& failure() const { return status_; }
  // Counts characters and objects against the work limit. False once the limit is exceeded.
  bool spend(uint64_t amount);

  template <typename T, typename... Args>
  T* make(Args&&... args) {
    spend(kThing);
    auto object = std::make_unique<T>(std::forward<Args>(args)...);
    T* raw = object.get();
    arena_.push_back(std::move(object));
    return raw;
  }
  [[nodiscard]] Value text(Text text, bool markup = false);
  [[nodiscard]] Value text(std::string_view bytes) { return text(Text(bytes)); }
  // A string of the caller's, whose spans say where it is shown. `content`: tokenized without
  // control tokens.
  [[nodiscard]] Value given(std::string_view bytes, bool content);
  // The text of a string of given(), by its Span::source.
  [[nodiscard]] std::string_view source(uint32_t number) const {
    return sources_[number - 1]->text.view();
  }
  [[nodiscard]] Value sequence(std::vector<Value> items, Flavor flavor = Flavor::kList);
  [[nodiscard]] Value undefined(std::string_view why);
  void put(Dict* dict, Value key, Value value);
  // The value of a key, or null.
  [[nodiscard]] const Value* find(const Dict& dict, const Value& key);

  [[nodiscard]] bool truth(const Value& value) const;
  [[nodiscard]] bool equal(const Value& a, const Value& b);
  [[nodiscard]] bool less(const Value& a, const Value& b);
  [[nodiscard]] bool contains(const Value& container, const Value& item);
  // The items of an iterable; for a generator, the remaining ones.
  [[nodiscard]] std::vector<Value> items(const Value& value);
  // Appends str(value); appends repr(value).
  void print(const Value& value, Text* out);
  void print_repr(const Value& value, Text* out);
  [[nodiscard]] Text str(const Value& value);
  struct JsonStyle {
    int64_t indent = -1;  // -1: on one line
    bool ascii = false;
    bool sorted = false;
    Text item = Text(", "), key = Text(": ");
  };
  void print_json(const Value& value, const JsonStyle& style, int64_t level, Text* out);

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

  // Counts nested evaluations in its lifetime.
  class Deeper {
   public:
    explicit Deeper(Interpreter* interpreter);
    ~Deeper() { --interpreter_->depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    Interpreter* interpreter_;
  };

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };
  static constexpr uint64_t kThing = 64;

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
  const uint32_t share_;
  Arena arena_;
  std::vector<const String*> sources_;
  Scope root_{nullptr};
  Text output_;
  Text* out_ = &output_;
  Value captured_;  // input of a block's filter
  Status status_;
  uint64_t steps_ = 0, work_ = 0;
  int depth_ = 0;
  uint32_t line_ = 1;
};

// Binds the arguments of a builtin to parameters, whose names `names` has with spaces between; null
// if omitted. "/" is a parameter without a name. Fails as Python does.
using Bound = std::array<const Value*, 4>;
[[nodiscard]] Bound bind(Interpreter& in, const char* callee, const Arguments& args,
                         std::string_view names);

struct Keyed {
  Value key, item;
};
// Sorts by key, and keeps the order of equal ones. Unlike std::sort it is safe if the comparison is
// inconsistent.
void sort_keyed(Interpreter& in, std::vector<Keyed>* items, bool reverse);

// The integer value of a bound argument, or `fallback` if it is omitted or None.
[[nodiscard]] int64_t whole_or(Interpreter& in, const Value* value, int64_t fallback);

// A character as Python escapes it: \xe9, \u20ac or \U0001f600.
[[nodiscard]] std::string escaped(uint32_t cp);
[[nodiscard]] const char* type_name(const Value& value);
[[nodiscard]] bool is_mapping(const Value& value);
[[nodiscard]] bool is_integer_numeral(const Value& value);
// Formats a number as Python does.
[[nodiscard]] std::string float_text(double number);
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

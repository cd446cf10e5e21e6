// Values of templates. A value is small and copyable. The object it points to belongs to the arena
// of one render and is freed with it, without recursion, so long chains and cycles are harmless.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "jinja/text.h"

namespace sluice::jinja {

struct Node;

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kNumeral,  // a number beyond 64 bits, kept as its digits: it is printed, not calculated with
  kString,
  kBytes,     // an encoded string, whose bytes are always UTF-8
  kSequence,  // list, tuple, generator, ...: Flavor
  kDict,
  kNamespace,  // a dictionary with assignable members
  kMacro,
  kMethod,    // a method bound to its object
  kFunction,  // a global function
  kLoop,      // the variable of a for loop
  kCycler,    // made by cycler() or joiner()
};

enum class Flavor : uint8_t { kList, kTuple, kGenerator, kKeys, kValues, kItems, kRange };

enum class Function : uint8_t { kRange, kDict, kNamespace, kRaise, kStrftime, kCycler, kJoiner };

struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
};

struct String;
struct Sequence;
struct Dict;
struct Macro;
struct Method;
struct Loop;
struct Cycler;

struct Value {
  Kind kind = Kind::kUndefined;
  union {
    bool boolean;
    int64_t integer;
    double number;
    Function function;
    // Also the bytes; for undefined: the reason, or null; for a numeral: its digits.
    const String* string;
    Sequence* sequence;
    Dict* dict;
    Macro* macro;
    Method* method;
    Loop* loop;
    Cycler* cycler;
  };

  Value() : string(nullptr) {}
  explicit Value(bool value) : kind(Kind::kBool), integer(0) { boolean = value; }
  explicit Value(int64_t value) : kind(Kind::kInt), integer(value) {}
  explicit Value(double value) : kind(Kind::kFloat), number(value) {}
  explicit Value(Function value) : kind(Kind::kFunction), integer(0) { function = value; }
  explicit Value(const String* value) : kind(Kind::kString), string(value) {}
  explicit Value(Sequence* value) : kind(Kind::kSequence), sequence(value) {}
  explicit Value(Dict* value) : kind(Kind::kDict), dict(value) {}
  explicit Value(Macro* value) : kind(Kind::kMacro), macro(value) {}
  explicit Value(Method* value) : kind(Kind::kMethod), method(value) {}
  explicit Value(Loop* value) : kind(Kind::kLoop), loop(value) {}
  explicit Value(Cycler* value) : kind(Kind::kCycler), cycler(value) {}

  [[nodiscard]] bool is(Kind other) const { return kind == other; }
  [[nodiscard]] bool is_absent() const { return kind == Kind::kUndefined || kind == Kind::kNone; }
  // bool, int or float
  [[nodiscard]] bool is_number() const {
    return kind == Kind::kBool || kind == Kind::kInt || kind == Kind::kFloat;
  }
  // bool or int
  [[nodiscard]] bool is_whole() const { return kind == Kind::kBool || kind == Kind::kInt; }
  [[nodiscard]] int64_t whole() const { return is(Kind::kBool) ? (boolean ? 1 : 0) : integer; }
  [[nodiscard]] double real() const {
    return is(Kind::kFloat) ? number : static_cast<double>(whole());
  }
};

[[nodiscard]] inline Value none() {
  Value value;
  value.kind = Kind::kNone;
  return value;
}

struct String : Object {
  Text text;
  bool markup = false;  // from the filter safe: + escapes the other operand
};

struct Sequence : Object {
  std::vector<Value> items;
  Flavor flavor = Flavor::kList;
  size_t next = 0;     // for a generator: number of items taken
  bool group = false;  // a pair of groupby, with the names grouper and list
};

// Keys in insertion order: strings are hashed, others (numbers, None, tuples) searched linearly.
struct Dict : Object {
  std::vector<std::pair<Value, Value>> entries;
  std::unordered_map<std::string_view, size_t> by_name;
  bool plain_keys = true;  // all keys are strings
};

// The variables of a block. Names are numbers; see Program::names.
struct Scope : Object {
  explicit Scope(Scope* outer) : outer(outer) {}
  Scope* outer;
  std::vector<std::pair<uint32_t, Value>> variables;
};

struct Macro : Object {
  const Node* node = nullptr;
  Scope* scope = nullptr;
};

struct Method : Object {
  Value self;
  std::string name;
};

struct Loop : Object {
  const Node* node = nullptr;  // the for statement, for recursive calls
  Scope* scope = nullptr;      // its enclosing scope
  std::vector<Value> items;
  size_t index = 0;
  int64_t depth = 1;
  std::vector<Value> changed;  // last arguments of loop.changed()
  bool asked = false;
};

// A cycler returns one item after another. A joiner, which is called, returns "" once and then its
// only item.
struct Cycler : Object {
  std::vector<Value> items;
  size_t next = 0;
  bool joins = false;
};

using Arena = std::vector<std::unique_ptr<Object>>;

}  // namespace sluice::jinja

// A parsed template: a tree of nodes in one arena, so that freeing it needs no recursion.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/status.h"
#include "jinja/value.h"

namespace sluice::jinja {

enum class NodeKind : uint8_t {
  // statements
  kData,         // literal
  kPrint,        // first
  kIf,           // branches: tests[i] → bodies[i]; one more body: else
  kFor,          // first: target, second: sequence, third: test or null; bodies: each, else
  kSet,          // first: target, second: value
  kSetBlock,     // first: target, second: filter or null; bodies[0]
  kMacro,        // text; arguments with defaults; bodies[0]
  kCallBlock,    // first: the call; arguments of caller; bodies[0]
  kFilterBlock,  // first: filter of kCaptured; bodies[0]
  kWith,         // operands: target, value, ...; bodies[0]
  kBlock,        // bodies[0]: {% generation %}
  kBreak,
  kContinue,
  // expressions
  kLiteral,    // literal
  kConstant,   // constant
  kName,       // name
  kList,       // operands
  kTuple,      // operands
  kDict,       // operands: key, value, ...
  kCondition,  // first if second else third (or null)
  kAnd,        // first, second
  kOr,
  kNot,      // first
  kCompare,  // first, then arguments: operator and operand
  kConcat,   // operands
  kBinary,   // first text second
  kNegate,   // first
  kPositive,
  kAttribute,  // first.text; as a target: member of a namespace
  kItem,       // first[second]
  kSlice,      // first[second:third:fourth], each null if omitted
  kCall,       // first(arguments)
  kFilter,     // first|text(arguments)
  kTest,       // first is text(arguments)
  kCaptured,   // the output of the enclosing block
};

enum class Pass : uint8_t { kByPlace, kByName, kList, kDict };

struct Node;

struct Argument {
  std::string name;
  Node* value = nullptr;  // of a macro's parameter: the default, or null
  Pass pass = Pass::kByPlace;
  uint32_t variable = 0;  // of a macro's parameter
};

struct Node : Object {
  NodeKind kind = NodeKind::kConstant;
  bool recursive = false;  // a for loop that loop() may call
  uint32_t line = 0;
  uint32_t name = 0;
  Node* first = nullptr;
  Node* second = nullptr;
  Node* third = nullptr;
  Node* fourth = nullptr;
  std::string text;
  const String* literal = nullptr;
  Value constant;
  std::vector<Node*> operands;
  std::vector<Argument> arguments;
  std::vector<std::vector<Node*>> bodies;
};

struct Program {
  Arena nodes, literals;
  std::vector<Node*> body;
  std::unordered_map<std::string, uint32_t> names;  // variable numbers by name
  // Every name and string in the source. The same strings in the caller's data (a role, a type)
  // count as the template's own text.
  std::unordered_set<std::string> known;
};

// Parses a template. Errors: kChatTemplate, with the line.
[[nodiscard]] Status parse(std::string_view source, Program* out);

}  // namespace sluice::jinja

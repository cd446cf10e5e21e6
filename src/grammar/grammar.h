// A compiled grammar: what text may be said, as a network of byte transitions and rule calls that a
// Matcher walks (matcher.h). Compiled once from GBNF, a regular expression, a list of literals or a
// JSON schema; immutable afterwards, and independent of any model, except where a grammar names
// tokens.
//
// Every rule is a nondeterministic automaton over bytes (characters become their UTF-8 bytes) whose
// edges may call rules. The network holds only what can be completed: an automaton that is in a
// state at all can reach its end, so that a text that is allowed so far can always be finished.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sluice::grammar {

using Token = int32_t;
class Vocabulary;

inline constexpr size_t kMaxSource = 1 << 20;   // bytes of a grammar's text
inline constexpr size_t kMaxNodes = 160'000;    // of a network
inline constexpr size_t kMaxRanges = 160'000;   // of a network
inline constexpr uint32_t kMaxRepeat = 50'000;  // copies that a quantifier makes
inline constexpr int kMaxNesting = 128;         // groups in groups, arrays in arrays

enum class Kind : uint8_t {
  kGbnf,
  kRegex,       // anchored at both ends
  kChoice,      // a JSON array of strings, one of which is said
  kJson,        // any JSON value; the text is ignored
  kJsonSchema,  // draft 2020-12 or 7
};

struct CompileOptions {
  // JSON only. Compact: no whitespace at all. Otherwise any, up to kMaxWhitespace in a place, or at
  // most one space.
  bool compact = true;
  bool one_space = false;
};
inline constexpr uint32_t kMaxWhitespace = 64;

enum class Op : uint8_t {
  kByte,      // a byte in [lo, hi], then a
  kRanges,    // a byte in one of the ranges [a, a + b), then its target
  kSplit,     // a or b
  kCall,      // rule a, then b
  kEnd,       // the rule's end
  kFinal,     // the text's end
  kToken,     // the token with id a, then b
  kNotToken,  // any token but a, then b; kNoToken excludes none
  kFail,      // nothing
};

struct Node {
  Op op = Op::kFail;
  uint8_t lo = 0, hi = 0;
  bool live = false;  // can reach the end of its rule
  uint32_t a = 0, b = 0;
};

struct Range {
  uint8_t lo, hi;
  uint32_t target;
};

struct Rule {
  uint32_t start = 0;
  uint32_t rank = 0;  // greater than that of every rule that can begin with this one
  bool nullable = false;
};

inline constexpr uint32_t kEndNode = 0, kFinalNode = 1, kFailNode = 2;

class Grammar {
 public:
  std::vector<Node> nodes;
  std::vector<Range> ranges;
  std::vector<Rule> rules;  // the first is the root
  uint8_t byte_class[256] = {};
  uint8_t class_byte[256] = {};  // one byte of each class
  uint32_t n_classes = 0;
  bool has_tokens = false;

  [[nodiscard]] bool empty() const { return !nodes[rules[0].start].live; }  // no text at all
  [[nodiscard]] uint64_t memory_bytes() const;
};

// Errors: kGrammarSyntax, kGrammarLeftRecursion, kSchemaUnsupported, kGrammarTooLarge; the first
// names line and column, those of a schema its JSON pointer. `vocabulary` may be null: then a token
// that a grammar names by text stands for that text.
[[nodiscard]] Result<std::shared_ptr<const Grammar>> compile(Kind kind, std::string_view text,
                                                             const Vocabulary* vocabulary,
                                                             const CompileOptions& options = {});

// At most what a grammar holds, compiled or on the way.
[[nodiscard]] uint64_t compile_memory();

enum class Verdict : uint8_t { kMatch, kPrefix, kReject };
// Whether a text fits a grammar, could still become one that does, or neither. Where the grammar
// names tokens, 0xFF (or U+FFFD) and four bytes, highest first, stand for the token of that id, and
// every other character for a token of its own. Errors: kGrammarTooLarge.
[[nodiscard]] Result<Verdict> check(const Grammar& grammar, std::string_view text);

}  // namespace sluice::grammar

// A compiled grammar: the allowed texts, as a pushdown automaton of byte transitions and rule
// calls. A Matcher (matcher.h) walks it. It is compiled from GBNF, a regular expression, a list of
// strings or a JSON schema. It is immutable and independent of any model, except where a grammar
// names tokens.
//
// Every rule is a nondeterministic automaton over UTF-8 bytes whose edges may call rules. Every
// state of the automaton can reach the end, so a text that is allowed so far can always be
// completed.
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

inline constexpr size_t kMaxSource = 1 << 20;   // bytes of source text
inline constexpr size_t kMaxNodes = 160'000;    // of one automaton
inline constexpr size_t kMaxRanges = 160'000;   // of one automaton
inline constexpr uint32_t kMaxRepeat = 50'000;  // copies made for a quantifier
inline constexpr int kMaxNesting = 128;         // nested groups or arrays

enum class Kind : uint8_t {
  kGbnf,
  kRegex,       // anchored at both ends
  kChoice,      // a JSON array of strings; the text is one of them
  kJson,        // any JSON value; the source text is ignored
  kJsonSchema,  // draft 2020-12 or 7
};

struct CompileOptions {
  // For JSON. `compact`: no whitespace. Otherwise up to kMaxWhitespace in each place, or with
  // `one_space` at most one space.
  bool compact = true;
  bool one_space = false;
};
inline constexpr uint32_t kMaxWhitespace = 64;

enum class Op : uint8_t {
  kByte,      // a byte in [lo, hi], then a
  kRanges,    // a byte in one of the ranges [a, a + b), then its target
  kSplit,     // a or b
  kCall,      // rule a, then b
  kEnd,       // end of the rule
  kFinal,     // end of the text
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
  uint32_t rank = 0;  // greater than the rank of every rule that can begin with this one
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

  [[nodiscard]] bool empty() const { return !nodes[rules[0].start].live; }  // matches no text
  [[nodiscard]] uint64_t memory_bytes() const;
};

// Compiles a grammar. `vocabulary` may be null; then a token named by text stands for that text.
// Errors: kGrammarSyntax with line and column, kSchemaUnsupported with a JSON pointer,
// kGrammarLeftRecursion, kGrammarTooLarge.
[[nodiscard]] Result<std::shared_ptr<const Grammar>> compile(Kind kind, std::string_view text,
                                                             const Vocabulary* vocabulary,
                                                             const CompileOptions& options = {});

// Maximum bytes that a grammar holds, during and after compilation.
[[nodiscard]] uint64_t compile_memory();

enum class Verdict : uint8_t { kMatch, kPrefix, kReject };
// Whether a text matches a grammar, is a prefix of a match, or neither. If the grammar names
// tokens, 0xFF (or U+FFFD) and four big-endian bytes stand for the token of that id, and every
// other character for a token of its own. Errors: kGrammarTooLarge.
[[nodiscard]] Result<Verdict> check(const Grammar& grammar, std::string_view text);

}  // namespace sluice::grammar

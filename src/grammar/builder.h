// Builds a pushdown automaton from expressions. GBNF, regular expressions and schemas share it:
// they make expressions and define rules with them. build() turns these into a Grammar, rejects
// left recursion and marks what can be completed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/char_class.h"
#include "grammar/grammar.h"

namespace sluice::grammar {

using Expr = uint32_t;  // index of an expression in its builder
class Dfa;

// Whether JSON text must escape the byte with a backslash.
[[nodiscard]] inline bool escaped(uint32_t byte) {
  return byte < 0x20 || byte == '"' || byte == '\\';
}

class Builder {
 public:
  static constexpr Expr kEmpty = 0, kNever = 1;
  static constexpr uint32_t kUnbounded = UINT32_MAX;

  Builder();

  [[nodiscard]] Expr bytes(std::string_view text);
  [[nodiscard]] Expr chars(const CharClass& set);  // one character, in UTF-8
  [[nodiscard]] Expr seq(const std::vector<Expr>& parts);
  [[nodiscard]] Expr alt(const std::vector<Expr>& parts);
  [[nodiscard]] Expr repeat(Expr body, uint32_t least, uint32_t most);
  [[nodiscard]] Expr maybe(Expr body) { return repeat(body, 0, 1); }
  [[nodiscard]] Expr call(uint32_t rule);
  [[nodiscard]] Expr token(Token id, bool negated);
  // One of the texts. Common prefixes are shared.
  [[nodiscard]] Expr choice(std::vector<std::string> texts);
  // The language of an automaton. `quoted`: as the inside of a JSON string, in its shortest form.
  [[nodiscard]] Expr automaton(const Dfa& dfa, bool quoted);

  [[nodiscard]] uint32_t new_rule(std::string name = {});
  void define(uint32_t rule, Expr body) { rules_[rule].body = body; }

  // Whether a limit was exceeded. Later expressions are invalid, and build() returns an error.
  [[nodiscard]] bool full() const { return full_; }
  // The first rule is the root. Errors: kGrammarLeftRecursion, kGrammarTooLarge.
  [[nodiscard]] Result<std::shared_ptr<const Grammar>> build();

 private:
  enum class What : uint8_t {
    kEmpty,
    kNever,
    kBytes,
    kChars,
    kSeq,
    kAlt,
    kRepeat,
    kCall,
    kToken,
    kNotToken,
    kPart
  };
  struct Piece {
    What what;
    uint32_t a = 0, b = 0, c = 0;  // meaning depends on `what`; see emit()
    uint32_t weight = 1;           // estimated number of nodes
  };
  struct Definition {
    std::string name;
    Expr body = kNever;
  };

  Expr add(Piece piece);
  Expr list(What what, const std::vector<Expr>& parts);
  Expr branches(const std::vector<std::string>& texts, size_t from, size_t to, size_t at,
                int depth);
  uint32_t node(Node n);
  uint32_t emit(Expr e, uint32_t next);
  uint32_t emit_chars(const CharClass& set, uint32_t next);
  uint32_t emit_repeat(const Piece& p, uint32_t next);
  uint32_t emit_part(uint32_t index, uint32_t next);
  bool begins(uint32_t start, std::vector<uint32_t>* calls);
  void find_nullable();
  Status rank_rules();
  void mark_live();
  void classify_bytes();

  // An automaton whose nodes are built once the node after it is known. Edges are ranges of source
  // bytes.
  struct PartEdge {
    uint8_t lo, hi;
    uint32_t target;
  };
  struct PartState {
    uint32_t first, count;
    bool accepts;
  };
  struct Part {
    std::vector<PartState> states;
    std::vector<PartEdge> edges;
    bool quoted;
  };

  std::vector<Piece> pieces_;
  std::vector<Expr> lists_;
  std::string text_;
  std::vector<CharClass> classes_;
  std::vector<Part> parts_;
  std::vector<Definition> rules_;
  std::shared_ptr<Grammar> out_;
  std::vector<uint32_t> marks_;
  bool full_ = false;
  int depth_ = 0;
};

}  // namespace sluice::grammar

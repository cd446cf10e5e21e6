// A recursive descent parser with Jinja's precedence. After an error it moves to the end of the
// input and returns dummy nodes, so callers only check the status once.
#pragma once

#include "jinja/lexer.h"
#include "jinja/program.h"

namespace sluice::jinja {

class Parser {
 public:
  Parser(std::vector<Lexeme> lexemes, Program* program);
  [[nodiscard]] Status parse();

 private:
  // --- lexemes
  [[nodiscard]] const Lexeme& now() const { return lexemes_[at_]; }
  [[nodiscard]] const Lexeme& after() const {
    return lexemes_[at_ + (at_ + 1 < lexemes_.size() ? 1 : 0)];
  }
  [[nodiscard]] bool is(Lex kind) const { return now().kind == kind; }
  [[nodiscard]] bool is_operator(std::string_view text) const {
    return is(Lex::kOperator) && now().text == text;
  }
  [[nodiscard]] bool is_word(std::string_view text) const {
    return is(Lex::kName) && now().text == text;
  }
  void next() { at_ += at_ + 1 < lexemes_.size() ? 1 : 0; }
  bool take_operator(std::string_view text);
  bool take_word(std::string_view text);
  void expect_operator(std::string_view text);
  void expect(Lex kind, const char* what);
  std::string take_name();
  void fail(const char* format, ...) __attribute__((format(SLUICE_PRINTF, 2, 3)));
  [[nodiscard]] bool ok() const { return status_.ok(); }
  [[nodiscard]] std::string shown() const;

  // --- nodes
  Node* make(NodeKind kind);
  Node* make_literal(std::string_view text);
  Node* make_name(const std::string& name);
  Node* make_constant(Value value);
  Node* make_unary(NodeKind kind, Node* first);
  uint32_t variable(const std::string& name);

  // --- statements (parser.cpp)
  using Words = std::initializer_list<std::string_view>;
  // Parses until a block tag that begins with one of `ends`, which is not consumed.
  std::vector<Node*> body(Words ends);
  std::vector<Node*> closed_body(std::string_view end);
  std::vector<Node*> captured_body(std::string_view end);
  void end_block();
  void end_with(std::string_view word);
  Node* statement();
  Node* if_statement();
  Node* for_statement();
  Node* set_statement();
  Node* macro_statement();
  Node* call_statement();
  Node* filter_statement();
  Node* with_statement();
  Node* block_statement();
  Node* loop_control(NodeKind kind);
  void parameters(Node* node);
  Node* target(bool members);
  Node* one_target(bool members);

  // --- expressions (expressions.cpp)
  Node* expression();  // with "if … else"
  Node* tuple(bool conditions, bool until_recursive = false);
  Node* condition();
  Node* disjunction();
  Node* conjunction();
  Node* negation();
  Node* comparison();
  Node* sum();
  Node* concatenation();
  Node* product();
  Node* power();
  Node* unary(bool with_filters);
  Node* primary();
  Node* parenthesized();
  Node* list();
  Node* dict();
  Node* postfix(Node* node);
  Node* filters(Node* node, bool in_tag = false);
  Node* filter(Node* node);
  Node* test(Node* node);
  Node* subscript(Node* node);
  void call_arguments(Node* node);
  std::string dotted_name();

  class Depth {
   public:
    explicit Depth(Parser* parser);
    ~Depth() { --parser_->depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;

   private:
    Parser* parser_;
  };

  std::vector<Lexeme> lexemes_;
  size_t at_ = 0;
  Program* program_;
  Status status_;
  int depth_ = 0;
  int loops_ = 0;  // nesting of loops inside the current macro
};

}  // namespace sluice::jinja

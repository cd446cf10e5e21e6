// Parses a template: its statements and text; expression_parser.h has the expressions.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "jinja/expression_parser.h"

namespace sluice::jinja {

class Parser : private ExpressionParser {
 public:
  Parser(std::vector<Lexeme> lexemes, Program* program)
      : ExpressionParser(std::move(lexemes), program) {}
  [[nodiscard]] Status parse();

 private:
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

  int loops_ = 0;  // nesting of loops inside the current macro
};

}  // namespace sluice::jinja

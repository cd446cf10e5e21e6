// Parses expressions by recursive descent, with Jinja's precedence. After an error its functions
// return dummy nodes.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/lexeme_reader.h"
#include "jinja/program.h"

namespace sluice::jinja {

class ExpressionParser : protected LexemeReader {
 protected:
  ExpressionParser(std::vector<Lexeme> lexemes, Program* program)
      : LexemeReader(std::move(lexemes)), program_(program) {}

  Node* make(NodeKind kind);
  Node* make_literal(std::string_view text);
  Node* make_name(const std::string& name);
  Node* make_constant(Value value);
  Node* make_unary(NodeKind kind, Node* first);
  uint32_t variable(const std::string& name);

  Node* expression();  // with "if … else"
  Node* tuple(bool conditions, bool until_recursive = false);
  Node* filters(Node* node, bool in_tag = false);

 private:
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
  Node* filter(Node* node);
  Node* test(Node* node);
  Node* subscript(Node* node);
  void call_arguments(Node* node);
  std::string dotted_name();

 protected:
  Program* program_;
};

}  // namespace sluice::jinja

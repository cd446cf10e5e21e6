// Parses expressions, from the lowest precedence to the highest.
#include <utility>

#include "jinja/parser.h"

namespace sluice::jinja {

Node* Parser::expression() {
  return condition();
}

// Parses one expression, or several separated by commas: a tuple. `conditions`: allow "a if b".
Node* Parser::tuple(bool conditions, bool until_recursive) {
  const Depth depth(this);
  const auto ends = [&] {
    return is(Lex::kClosePrint) || is(Lex::kCloseBlock) || is(Lex::kEnd) || is_operator(")") ||
           (until_recursive && is_word("recursive"));
  };
  Node* first = conditions ? condition() : disjunction();
  if (!is_operator(",")) return first;
  Node* node = make(NodeKind::kTuple);
  node->operands.push_back(first);
  while (ok() && take_operator(",") && !ends()) {
    node->operands.push_back(conditions ? condition() : disjunction());
  }
  return node;
}

Node* Parser::condition() {
  const Depth depth(this);
  Node* node = disjunction();
  while (ok() && take_word("if")) {
    Node* choice = make_unary(NodeKind::kCondition, node);
    choice->second = disjunction();
    if (take_word("else")) choice->third = condition();
    node = choice;
  }
  return node;
}

Node* Parser::disjunction() {
  Node* node = conjunction();
  while (take_word("or")) {
    node = make_unary(NodeKind::kOr, node);
    node->second = conjunction();
  }
  return node;
}

Node* Parser::conjunction() {
  Node* node = negation();
  while (take_word("and")) {
    node = make_unary(NodeKind::kAnd, node);
    node->second = negation();
  }
  return node;
}

Node* Parser::negation() {
  const Depth depth(this);
  if (take_word("not")) return make_unary(NodeKind::kNot, negation());
  return comparison();
}

Node* Parser::comparison() {
  Node* first = sum();
  Node* node = nullptr;
  for (;;) {
    std::string text;
    if (is_word("not") && after().kind == Lex::kName && after().text == "in") {
      next();
      text = "not in";
    } else if (is_word("in")) {
      text = "in";
    } else if (is(Lex::kOperator)) {
      for (const char* op : {"==", "!=", "<=", ">=", "<", ">"}) {
        if (now().text == op) text = op;
      }
    }
    if (text.empty()) return node != nullptr ? node : first;
    next();
    if (node == nullptr) node = make_unary(NodeKind::kCompare, first);
    Argument argument;
    argument.value = sum();
    argument.name = std::move(text);
    node->arguments.push_back(std::move(argument));
  }
}

Node* Parser::sum() {
  Node* node = concatenation();
  while (is_operator("+") || is_operator("-")) {
    node = make_unary(NodeKind::kBinary, node);
    node->text = now().text;
    next();
    node->second = concatenation();
  }
  return node;
}

Node* Parser::concatenation() {
  Node* first = product();
  if (!is_operator("~")) return first;
  Node* node = make(NodeKind::kConcat);
  node->operands.push_back(first);
  while (take_operator("~")) node->operands.push_back(product());
  return node;
}

Node* Parser::product() {
  Node* node = power();
  while (is_operator("*") || is_operator("/") || is_operator("//") || is_operator("%")) {
    node = make_unary(NodeKind::kBinary, node);
    node->text = now().text;
    next();
    node->second = power();
  }
  return node;
}

Node* Parser::power() {
  Node* node = unary(true);
  while (is_operator("**")) {
    node = make_unary(NodeKind::kBinary, node);
    node->text = "**";
    next();
    node->second = unary(true);
  }
  return node;
}

Node* Parser::unary(bool with_filters) {
  const Depth depth(this);
  Node* node = nullptr;
  if (take_operator("-")) {
    node = make_unary(NodeKind::kNegate, unary(false));
  } else if (take_operator("+")) {
    node = make_unary(NodeKind::kPositive, unary(false));
  } else {
    node = primary();
  }
  node = postfix(node);
  return with_filters ? filters(node) : node;
}

Node* Parser::primary() {
  const Lexeme lexeme = now();
  switch (lexeme.kind) {
    case Lex::kName:
      next();
      if (lexeme.text == "true" || lexeme.text == "True") return make_constant(Value(true));
      if (lexeme.text == "false" || lexeme.text == "False") return make_constant(Value(false));
      if (lexeme.text == "none" || lexeme.text == "None") return make_constant(none());
      return make_name(lexeme.text);
    case Lex::kString: {
      std::string text;
      for (; is(Lex::kString); next()) text += now().text;
      return make_literal(text);
    }
    case Lex::kInt:
      next();
      return make_constant(Value(lexeme.integer));
    case Lex::kFloat:
      next();
      return make_constant(Value(lexeme.number));
    case Lex::kNumeral: {
      next();
      Node* node = make_literal(lexeme.text);
      node->kind = NodeKind::kConstant;
      node->constant = Value(node->literal);
      node->constant.kind = Kind::kNumeral;
      return node;
    }
    default:
      if (is_operator("(")) return parenthesized();
      if (is_operator("[")) return list();
      if (is_operator("{")) return dict();
      fail("expected an expression, not %s", shown().c_str());
      return make(NodeKind::kConstant);
  }
}

Node* Parser::parenthesized() {
  next();
  if (take_operator(")")) return make(NodeKind::kTuple);
  Node* node = tuple(true);
  expect_operator(")");
  return node;
}

Node* Parser::list() {
  next();
  Node* node = make(NodeKind::kList);
  while (ok() && !is_operator("]")) {
    if (!node->operands.empty()) expect_operator(",");
    if (is_operator("]")) break;
    node->operands.push_back(expression());
  }
  expect_operator("]");
  return node;
}

Node* Parser::dict() {
  next();
  Node* node = make(NodeKind::kDict);
  while (ok() && !is_operator("}")) {
    if (!node->operands.empty()) expect_operator(",");
    if (is_operator("}")) break;
    node->operands.push_back(expression());
    expect_operator(":");
    node->operands.push_back(expression());
  }
  expect_operator("}");
  return node;
}

Node* Parser::postfix(Node* node) {
  for (;;) {
    if (is_operator(".") || is_operator("[")) {
      node = subscript(node);
    } else if (is_operator("(")) {
      node = make_unary(NodeKind::kCall, node);
      call_arguments(node);
    } else {
      return node;
    }
  }
}

// Parses filters, tests and calls after an operand. `in_tag`: the first filter may omit its bar, as
// in {% filter trim %} or {% set x | trim %}, and tests are not allowed.
Node* Parser::filters(Node* node, bool in_tag) {
  if (in_tag && !is_operator("|")) node = filter(node);
  for (;;) {
    if (take_operator("|")) {
      node = filter(node);
    } else if (!in_tag && take_word("is")) {
      node = test(node);
    } else if (!in_tag && is_operator("(")) {
      node = make_unary(NodeKind::kCall, node);
      call_arguments(node);
    } else {
      return node;
    }
  }
}

std::string Parser::dotted_name() {
  std::string name = take_name();
  while (take_operator(".")) name += "." + take_name();
  return name;
}

Node* Parser::filter(Node* operand) {
  Node* node = make_unary(NodeKind::kFilter, operand);
  node->text = dotted_name();
  if (is_operator("(")) call_arguments(node);
  return node;
}

Node* Parser::test(Node* operand) {
  const bool negated = take_word("not");
  Node* node = make_unary(NodeKind::kTest, operand);
  node->text = dotted_name();
  const bool begins = is(Lex::kName) || is(Lex::kString) || is(Lex::kInt) || is(Lex::kFloat) ||
                      is(Lex::kNumeral) || is_operator("[") || is_operator("{");
  if (is_operator("(")) {
    call_arguments(node);
  } else if (begins && !is_word("else") && !is_word("or") && !is_word("and")) {
    if (is_word("is")) fail("tests cannot be chained with is");
    const bool more = is(Lex::kName) && (now().text == "if" || now().text == "not" ||
                                         now().text == "in" || now().text == "recursive");
    if (!more) {
      Argument argument;
      argument.value = postfix(primary());
      node->arguments.push_back(argument);
    }
  }
  return negated ? make_unary(NodeKind::kNot, node) : node;
}

Node* Parser::subscript(Node* node) {
  if (take_operator(".")) {
    if (is(Lex::kInt)) {
      node = make_unary(NodeKind::kItem, node);
      node->second = primary();
      return node;
    }
    node = make_unary(NodeKind::kAttribute, node);
    node->text = take_name();
    return node;
  }
  const Depth depth(this);
  next();  // [
  const auto part = [this]() -> Node* {
    return is_operator(":") || is_operator("]") ? nullptr : tuple(true);
  };
  Node* first = part();
  if (!is_operator(":")) {
    if (first == nullptr) fail("the index between [ and ] is missing");
    node = make_unary(NodeKind::kItem, node);
    node->second = first;
  } else {
    node = make_unary(NodeKind::kSlice, node);
    node->second = first;
    next();
    node->third = part();
    if (take_operator(":")) node->fourth = part();
  }
  expect_operator("]");
  return node;
}

void Parser::call_arguments(Node* node) {
  const Depth depth(this);
  expect_operator("(");
  while (ok() && !is_operator(")")) {
    if (!node->arguments.empty()) expect_operator(",");
    if (is_operator(")")) break;
    Argument argument;
    if (take_operator("**")) {
      argument.pass = Pass::kDict;
    } else if (take_operator("*")) {
      argument.pass = Pass::kList;
    } else if (is(Lex::kName) && after().kind == Lex::kOperator && after().text == "=") {
      argument.pass = Pass::kByName;
      argument.name = take_name();
      next();
    } else if (!node->arguments.empty() && node->arguments.back().pass == Pass::kByName) {
      fail("a positional argument follows a keyword argument");
    }
    argument.value = expression();
    node->arguments.push_back(std::move(argument));
  }
  expect_operator(")");
}

}  // namespace sluice::jinja

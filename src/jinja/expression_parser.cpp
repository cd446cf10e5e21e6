// Nodes, and expressions from the lowest precedence to the highest.
#include "jinja/expression_parser.h"

#include <utility>

namespace sluice::jinja {
namespace {

constexpr size_t kMaxNodes = 200'000;

}  // namespace

Node* ExpressionParser::make(NodeKind kind) {
  if (program_->nodes.size() >= kMaxNodes) fail("it is too large");
  auto* node = new Node;
  program_->nodes.emplace_back(node);
  node->kind = kind;
  node->line = now().line;
  return node;
}

Node* ExpressionParser::make_literal(std::string_view text) {
  Node* node = make(NodeKind::kLiteral);
  auto* literal = new String;
  program_->literals.emplace_back(literal);
  literal->text.append(text);
  node->literal = literal;
  return node;
}

Node* ExpressionParser::make_name(const std::string& name) {
  Node* node = make(NodeKind::kName);
  node->name = variable(name);
  node->text = name;
  return node;
}

Node* ExpressionParser::make_constant(Value value) {
  Node* node = make(NodeKind::kConstant);
  node->constant = value;
  return node;
}

Node* ExpressionParser::make_unary(NodeKind kind, Node* first) {
  Node* node = make(kind);
  node->first = first;
  return node;
}

uint32_t ExpressionParser::variable(const std::string& name) {
  const auto next_id = static_cast<uint32_t>(program_->names.size());
  return program_->names.emplace(name, next_id).first->second;
}

Node* ExpressionParser::expression() {
  return condition();
}

// Parses one expression, or several separated by commas: a tuple. `conditions`: allow "a if b".
Node* ExpressionParser::tuple(bool conditions, bool until_recursive) {
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

Node* ExpressionParser::condition() {
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

Node* ExpressionParser::disjunction() {
  Node* node = conjunction();
  while (take_word("or")) {
    node = make_unary(NodeKind::kOr, node);
    node->second = conjunction();
  }
  return node;
}

Node* ExpressionParser::conjunction() {
  Node* node = negation();
  while (take_word("and")) {
    node = make_unary(NodeKind::kAnd, node);
    node->second = negation();
  }
  return node;
}

Node* ExpressionParser::negation() {
  const Depth depth(this);
  if (take_word("not")) return make_unary(NodeKind::kNot, negation());
  return comparison();
}

Node* ExpressionParser::comparison() {
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

Node* ExpressionParser::sum() {
  Node* node = concatenation();
  while (is_operator("+") || is_operator("-")) {
    node = make_unary(NodeKind::kBinary, node);
    node->text = now().text;
    next();
    node->second = concatenation();
  }
  return node;
}

Node* ExpressionParser::concatenation() {
  Node* first = product();
  if (!is_operator("~")) return first;
  Node* node = make(NodeKind::kConcat);
  node->operands.push_back(first);
  while (take_operator("~")) node->operands.push_back(product());
  return node;
}

Node* ExpressionParser::product() {
  Node* node = power();
  while (is_operator("*") || is_operator("/") || is_operator("//") || is_operator("%")) {
    node = make_unary(NodeKind::kBinary, node);
    node->text = now().text;
    next();
    node->second = power();
  }
  return node;
}

Node* ExpressionParser::power() {
  Node* node = unary(true);
  while (is_operator("**")) {
    node = make_unary(NodeKind::kBinary, node);
    node->text = "**";
    next();
    node->second = unary(true);
  }
  return node;
}

Node* ExpressionParser::unary(bool with_filters) {
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

Node* ExpressionParser::primary() {
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

Node* ExpressionParser::parenthesized() {
  next();
  if (take_operator(")")) return make(NodeKind::kTuple);
  Node* node = tuple(true);
  expect_operator(")");
  return node;
}

Node* ExpressionParser::list() {
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

Node* ExpressionParser::dict() {
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

Node* ExpressionParser::postfix(Node* node) {
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
Node* ExpressionParser::filters(Node* node, bool in_tag) {
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

std::string ExpressionParser::dotted_name() {
  std::string name = take_name();
  while (take_operator(".")) name += "." + take_name();
  return name;
}

Node* ExpressionParser::filter(Node* operand) {
  Node* node = make_unary(NodeKind::kFilter, operand);
  node->text = dotted_name();
  if (is_operator("(")) call_arguments(node);
  return node;
}

Node* ExpressionParser::test(Node* operand) {
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

Node* ExpressionParser::subscript(Node* node) {
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

void ExpressionParser::call_arguments(Node* node) {
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

// Parses statements.
#include "jinja/parser.h"

#include <algorithm>
#include <utility>

namespace sluice::jinja {

Status parse(std::string_view source, Program* out) {
  Result<std::vector<Lexeme>> lexemes = lex(source);
  if (!lexemes.ok()) return lexemes.status();
  return Parser(std::move(*lexemes), out).parse();
}

Status Parser::parse() {
  for (const Lexeme& lexeme : lexemes()) {
    if (lexeme.kind == Lex::kName || lexeme.kind == Lex::kString) {
      program_->known.insert(lexeme.text);
    }
  }
  program_->body = body({});
  return status();
}

std::vector<Node*> Parser::body(Words ends) {
  const Depth depth(this);
  std::vector<Node*> out;
  for (; ok() && !is(Lex::kEnd);) {
    if (is(Lex::kData)) {
      Node* data = make_literal(now().text);
      data->kind = NodeKind::kData;
      out.push_back(data);
      next();
    } else if (is(Lex::kOpenPrint)) {
      next();
      out.push_back(make_unary(NodeKind::kPrint, tuple(true)));
      expect(Lex::kClosePrint, "the end of the tag");
    } else {
      const std::string& word = after().text;
      if (std::find(ends.begin(), ends.end(), word) != ends.end()) return out;
      next();
      out.push_back(statement());
    }
  }
  if (ends.size() > 0) fail("'%s' is missing", std::string(ends.end()[-1]).c_str());
  return out;
}

void Parser::end_block() {
  expect(Lex::kCloseBlock, "the end of the tag");
}

void Parser::end_with(std::string_view word) {
  next();  // {%
  if (!take_word(word)) fail("'%s' is missing", std::string(word).c_str());
}

std::vector<Node*> Parser::closed_body(std::string_view end) {
  end_block();
  std::vector<Node*> nodes = body({end});
  end_with(end);
  return nodes;
}

// A body whose output is captured. break and continue inside it cannot refer to an outer loop.
std::vector<Node*> Parser::captured_body(std::string_view end) {
  const int loops = std::exchange(loops_, 0);
  std::vector<Node*> nodes = closed_body(end);
  loops_ = loops;
  return nodes;
}

// Parses one block tag with its bodies, to the end of its last tag.
Node* Parser::statement() {
  const std::string word = take_name();
  Node* node = nullptr;
  if (word == "if") {
    node = if_statement();
  } else if (word == "for") {
    node = for_statement();
  } else if (word == "set") {
    node = set_statement();
  } else if (word == "macro") {
    node = macro_statement();
  } else if (word == "call") {
    node = call_statement();
  } else if (word == "filter") {
    node = filter_statement();
  } else if (word == "with") {
    node = with_statement();
  } else if (word == "generation") {
    node = make(NodeKind::kBlock);
    node->bodies.push_back(captured_body("endgeneration"));
  } else if (word == "block") {
    node = block_statement();
  } else if (word == "break") {
    node = loop_control(NodeKind::kBreak);
  } else if (word == "continue") {
    node = loop_control(NodeKind::kContinue);
  } else {
    fail("unknown tag '%.40s'", word.c_str());
    return make(NodeKind::kBlock);
  }
  end_block();
  return node;
}

Node* Parser::loop_control(NodeKind kind) {
  if (loops_ == 0) fail("break and continue are allowed only in a loop");
  return make(kind);
}

Node* Parser::if_statement() {
  Node* node = make(NodeKind::kIf);
  node->operands.push_back(tuple(false));
  for (;;) {
    end_block();
    node->bodies.push_back(body({"elif", "else", "endif"}));
    next();  // {%
    if (take_word("elif")) {
      node->operands.push_back(tuple(false));
    } else {
      break;
    }
  }
  if (take_word("else")) {
    node->bodies.push_back(closed_body("endif"));
  } else if (!take_word("endif")) {
    fail("'endif' is missing");
  }
  return node;
}

Node* Parser::for_statement() {
  Node* node = make(NodeKind::kFor);
  node->first = target(false);
  if (!take_word("in")) fail("expected 'in', not %s", shown().c_str());
  node->second = tuple(false, true);
  if (take_word("if")) node->third = expression();
  node->recursive = take_word("recursive");
  end_block();
  ++loops_;
  node->bodies.push_back(body({"else", "endfor"}));
  --loops_;
  next();  // {%
  if (take_word("else")) {
    node->bodies.push_back(closed_body("endfor"));
  } else if (!take_word("endfor")) {
    fail("'endfor' is missing");
  }
  return node;
}

Node* Parser::set_statement() {
  Node* node = make(NodeKind::kSet);
  node->first = target(true);
  if (take_operator("=")) {
    node->second = tuple(true);
    return node;
  }
  node->kind = NodeKind::kSetBlock;
  if (is_operator("|")) node->second = filters(make(NodeKind::kCaptured), true);
  node->bodies.push_back(captured_body("endset"));
  return node;
}

// Parses (name, name = default, …).
void Parser::parameters(Node* node) {
  expect_operator("(");
  while (ok() && !is_operator(")")) {
    if (!node->arguments.empty()) expect_operator(",");
    if (is_operator(")")) break;
    Argument parameter;
    parameter.name = take_name();
    parameter.variable = variable(parameter.name);
    if (take_operator("=")) {
      parameter.value = expression();
    } else if (!node->arguments.empty() && node->arguments.back().value != nullptr) {
      fail("a parameter without default follows one with a default");
    }
    node->arguments.push_back(std::move(parameter));
  }
  expect_operator(")");
}

Node* Parser::macro_statement() {
  Node* node = make(NodeKind::kMacro);
  node->text = take_name();
  node->name = variable(node->text);
  parameters(node);
  node->bodies.push_back(captured_body("endmacro"));
  return node;
}

Node* Parser::call_statement() {
  Node* node = make(NodeKind::kCallBlock);
  node->text = "caller";
  if (is_operator("(")) parameters(node);
  node->first = expression();
  if (node->first->kind != NodeKind::kCall) fail("the call tag needs a function call");
  node->bodies.push_back(captured_body("endcall"));
  return node;
}

Node* Parser::filter_statement() {
  Node* node = make(NodeKind::kFilterBlock);
  node->first = filters(make(NodeKind::kCaptured), true);
  node->bodies.push_back(captured_body("endfilter"));
  return node;
}

// {% block name %}: nothing extends a chat template, so its name does not matter.
Node* Parser::block_statement() {
  Node* node = make(NodeKind::kBlock);
  const std::string name = take_name();
  while (is_word("scoped") || is_word("required")) next();
  const int loops = std::exchange(loops_, 0);
  end_block();
  node->bodies.push_back(body({"endblock"}));
  end_with("endblock");
  take_word(name);
  loops_ = loops;
  return node;
}

Node* Parser::with_statement() {
  Node* node = make(NodeKind::kWith);
  while (ok() && !is(Lex::kCloseBlock)) {
    if (!node->operands.empty()) expect_operator(",");
    node->operands.push_back(target(false));
    expect_operator("=");
    node->operands.push_back(expression());
  }
  node->bodies.push_back(closed_body("endwith"));
  return node;
}

// Parses an assignment target: a name, several, or with `members` a namespace member.
Node* Parser::target(bool members) {
  const Depth depth(this);
  Node* first = one_target(members);
  if (!is_operator(",")) return first;
  Node* node = make(NodeKind::kTuple);
  node->operands.push_back(first);
  while (ok() && take_operator(",")) {
    if (!is(Lex::kName) && !is_operator("(")) break;
    node->operands.push_back(one_target(members));
  }
  return node;
}

Node* Parser::one_target(bool members) {
  if (take_operator("(")) {
    Node* inner = target(members);
    expect_operator(")");
    return inner;
  }
  const std::string name = take_name();
  for (const char* word : {"true", "false", "none", "True", "False", "None"}) {
    if (name == word) fail("'%s' cannot be assigned to", word);
  }
  Node* node = make_name(name);
  if (members && take_operator(".")) {
    node = make_unary(NodeKind::kAttribute, node);
    node->text = take_name();
  }
  return node;
}

}  // namespace sluice::jinja

// Parses llama.cpp's GBNF: rules of literals, classes, references, groups, alternatives and
// quantifiers, and references to tokens. Three symbols are extensions, each followed by a JSON
// value. %json SCHEMA is a value of a JSON schema, and %spaced SCHEMA the same with optional
// spaces. %until ["a", "b"] is any text without these strings; so a grammar can be free text up to
// a mark, and then a value.
#include <algorithm>
#include <cstdio>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/surrogates.h"
#include "grammar/builder.h"
#include "grammar/class_reader.h"
#include "grammar/dfa.h"
#include "grammar/front.h"
#include "grammar/json.h"
#include "grammar/schema.h"
#include "grammar/source.h"
#include "grammar/vocabulary.h"

namespace sluice::grammar {
namespace {

constexpr Token kUnknownToken = -2;

bool name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

class Gbnf {
 public:
  Gbnf(std::string_view text, const Vocabulary* vocabulary) : in_(text), vocabulary_(vocabulary) {}

  Result<std::shared_ptr<const Grammar>> parse() {
    static_cast<void>(named("root", 0));
    skip_space(true);
    while (!in_.at_end()) {
      SLUICE_RETURN_IF_ERROR(definition());
      skip_space(true);
      if (builder_.full()) break;
    }
    for (const Named& n : named_) {
      if (n.defined || builder_.full()) continue;
      const std::string what = n.name == "root" ? "the rule \"root\" is missing"
                                                : "the rule \"" + n.name + "\" is not defined";
      return in_.fail_at(n.position, what.c_str());
    }
    return builder_.build();
  }

 private:
  struct Named {
    std::string name;
    size_t position;  // of its first mention
    uint32_t rule;
    bool defined = false;
  };

  Named& named(std::string_view name, size_t position) {
    const auto [at, is_new] = by_name_.try_emplace(std::string(name), named_.size());
    if (is_new) {
      named_.push_back({std::string(name), position, builder_.new_rule(std::string(name))});
    }
    return named_[at->second];
  }

  // Skips blanks and comments, and newlines where a definition may continue.
  void skip_space(bool newlines) {
    for (;;) {
      const char c = in_.peek();
      if (c == '#') {
        while (!in_.at_end() && in_.peek() != '\n' && in_.peek() != '\r') in_.skip();
      } else if (c == ' ' || c == '\t' || (newlines && (c == '\n' || c == '\r'))) {
        in_.skip();
      } else {
        return;
      }
    }
  }

  Result<std::string_view> name() {
    const size_t start = in_.position();
    while (name_char(in_.peek())) in_.skip();
    if (in_.position() == start) return in_.fail("expected the name of a rule");
    return in_.since(start);
  }

  Status definition() {
    const size_t start = in_.position();
    const Result<std::string_view> own = name();
    if (!own.ok()) return own.status();
    skip_space(false);
    if (!in_.take("::=")) return in_.fail("expected \"::=\"");
    Named& defined = named(*own, start);
    const uint32_t rule = defined.rule;
    if (builder_.full()) return {};
    if (defined.defined) return in_.fail_at(start, "this rule is defined twice");
    defined.defined = true;
    skip_space(true);
    const Result<Expr> body = alternatives(0);
    if (!body.ok()) return body.status();
    if (!builder_.full()) builder_.define(rule, *body);
    if (!in_.at_end() && in_.peek() != '\n' && in_.peek() != '\r') {
      return in_.fail("unexpected text after the rule");
    }
    return {};
  }

  // A rule may continue on a line that begins with '|'.
  bool alternative_follows() {
    if (in_.peek() == '|') return true;
    const size_t start = in_.position();
    skip_space(true);
    if (in_.peek() == '|') return true;
    in_.go_to(start);
    return false;
  }

  Result<Expr> alternatives(int depth) {
    std::vector<Expr> parts;
    do {
      if (!parts.empty()) {
        in_.skip();
        skip_space(true);
      }
      const Result<Expr> part = sequence(depth);
      if (!part.ok()) return part;
      parts.push_back(*part);
    } while (alternative_follows() && !builder_.full());
    return builder_.alt(parts);
  }

  Result<Expr> sequence(int depth) {
    std::vector<Expr> parts;
    while (!in_.at_end() && !builder_.full()) {
      const char c = in_.peek();
      if (c == '*' || c == '+' || c == '?' || c == '{') {
        if (parts.empty()) return in_.fail("there is nothing before this quantifier");
        const Result<Expr> repeated = quantified(parts.back());
        if (!repeated.ok()) return repeated;
        parts.back() = *repeated;
      } else if (c == '|' || c == ')' || c == '\n' || c == '\r') {
        break;
      } else {
        const Result<Expr> part = symbol(depth);
        if (!part.ok()) return part;
        parts.push_back(*part);
      }
      skip_space(depth > 0);
    }
    return builder_.seq(parts);
  }

  Result<Expr> symbol(int depth) {
    const char c = in_.peek();
    if (c == '"') return literal();
    if (c == '[') return char_class();
    if (c == '<' || c == '!') return token_reference();
    if (c == '%') return directive();
    if (c == '.') {
      in_.skip();
      return builder_.chars(CharClass::all());
    }
    if (c == '(') {
      if (depth >= kMaxNesting) return in_.fail("groups are nested too deeply");
      const size_t start = in_.position();
      in_.skip();
      skip_space(true);
      const Result<Expr> inner = alternatives(depth + 1);
      if (!inner.ok()) return inner;
      if (in_.peek() != ')') return in_.fail_at(start, "this group is not closed");
      in_.skip();
      return inner;
    }
    if (name_char(c)) {
      const size_t start = in_.position();
      const Result<std::string_view> called = name();
      if (!called.ok()) return called.status();
      return builder_.call(named(*called, start).rule);
    }
    return in_.fail("expected a symbol");
  }

  Result<Expr> quantified(Expr body) {
    uint32_t least = 0, most = Builder::kUnbounded;
    const size_t start = in_.position();
    const char c = in_.peek();
    in_.skip();
    if (c == '+') least = 1;
    if (c == '?') most = 1;
    if (c == '{') {
      skip_space(true);
      if (!in_.number(&least)) return in_.fail("expected a number");
      most = least;
      skip_space(true);
      if (in_.take(",")) {
        skip_space(true);
        if (!in_.number(&most)) most = Builder::kUnbounded;
        skip_space(true);
      }
      if (!in_.take("}")) return in_.fail("expected \"}\"");
      if (most < least) return in_.fail_at(start, "the bounds of this quantifier are reversed");
      if (least > kMaxRepeat || (most != Builder::kUnbounded && most > kMaxRepeat)) {
        char what[80];
        std::snprintf(what, sizeof what, "a quantifier may repeat at most %u times", kMaxRepeat);
        return Status(Code::kGrammarTooLarge, in_.fail_at(start, what).message());
      }
    }
    return builder_.repeat(body, least, most);
  }

  // One character of a literal or class, with escapes decoded.
  Result<uint32_t> character() {
    if (in_.peek() != '\\') return in_.next_char();
    in_.skip();
    const char c = in_.peek();
    const int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits > 0) {
      in_.skip();
      const size_t start = in_.position();
      const Result<uint32_t> value = in_.hex(digits);
      if (value.ok() && !is_scalar_value(*value)) {
        return in_.fail_at(start, "this is not a Unicode character");
      }
      return value;
    }
    const char* const known = "t\tr\rn\n\\\\\"\"[[]]--^^";
    for (const char* k = known; *k != 0; k += 2) {
      if (*k != c) continue;
      in_.skip();
      return static_cast<uint32_t>(static_cast<uint8_t>(k[1]));
    }
    return in_.fail("unknown escape");
  }

  Result<Expr> literal() {
    const size_t start = in_.position();
    in_.skip();
    std::string text;
    while (in_.peek() != '"') {
      if (in_.at_end()) return in_.fail_at(start, "this literal is not closed");
      const Result<uint32_t> c = character();
      if (!c.ok()) return c.status();
      append_utf8(*c, &text);
    }
    in_.skip();
    return builder_.bytes(text);
  }

  Result<Expr> char_class() {
    const Result<CharClass> set = read_char_class(in_, [this](CharClass* out) -> Status {
      const Result<uint32_t> c = character();
      if (!c.ok()) return c.status();
      out->add(*c, *c);
      return {};
    });
    if (!set.ok()) return set.status();
    return builder_.chars(*set);
  }

  // <name> or <[id]>; with '!', any other token.
  Result<Expr> token_reference() {
    const size_t start = in_.position();
    const bool negated = in_.take("!");
    if (!in_.take("<")) return in_.fail("expected \"<\"");
    if (in_.take("[")) {
      uint32_t id = 0;
      if (!in_.number(&id)) return in_.fail("expected the number of a token");
      if (!in_.take("]>")) return in_.fail("expected \"]>\"");
      if (vocabulary_ != nullptr && id >= static_cast<uint32_t>(vocabulary_->n_tokens())) {
        return in_.fail_at(start, "the model has no token with this number");
      }
      return builder_.token(static_cast<Token>(id), negated);
    }
    while (in_.peek() != '>') {
      if (in_.at_end() || in_.peek() == '\n') {
        return in_.fail_at(start, "this token's name is not closed");
      }
      in_.skip();
    }
    in_.skip();
    const std::string_view text = in_.since(start + (negated ? 1 : 0));
    if (vocabulary_ == nullptr) {
      return negated ? builder_.token(kUnknownToken, true) : builder_.bytes(text);
    }
    const Token id = vocabulary_->find(text);
    if (id < 0) return in_.fail_at(start, "the model has no token with this name");
    return builder_.token(id, negated);
  }

  // Parses %json SCHEMA, %spaced SCHEMA and %until ["text", …].
  Result<Expr> directive() {
    const size_t start = in_.position();
    in_.skip();
    const bool compact = in_.take("json");
    const bool schema = compact || in_.take("spaced");
    if (!schema && !in_.take("until")) {
      return in_.fail_at(start, "unknown directive; use %json, %spaced or %until");
    }
    size_t used = 0;
    Result<JsonDocument> value = JsonDocument::parse(in_.rest(), &used);
    if (!value.ok()) return in_.fail_at(start, value.status().message().c_str());
    in_.skip(used);
    if (!schema) return text_before(*value, start);
    const uint32_t rule = builder_.new_rule();
    SLUICE_RETURN_IF_ERROR(
        SchemaCompiler(std::move(*value), {.compact = compact, .one_space = true}, &builder_)
            .compile_into(rule));
    return builder_.call(rule);
  }

  Result<Expr> text_before(const JsonDocument& list, size_t start) {
    std::vector<std::string> marks;
    for (const uint32_t child : list[0].children) {
      const bool text = list[child].type == JsonType::kString;
      if (text && !list[child].text.empty()) marks.push_back(list[child].text);
    }
    if (list[0].type != JsonType::kArray || marks.empty() ||
        marks.size() != list[0].children.size()) {
      return in_.fail_at(start, "%until needs a list of strings");
    }
    Builder b;
    const uint32_t root = b.new_rule();
    const Expr any = b.repeat(b.chars(CharClass::all()), 0, Builder::kUnbounded);
    b.define(root, b.seq({any, b.choice(std::move(marks)), any}));
    const Result<std::shared_ptr<const Grammar>> with = b.build();
    if (!with.ok()) return with.status();
    const Dfa found = Dfa::of(**with);
    const Dfa free = Dfa::combine(Dfa::all_text(), found, Dfa::How::kOnlyFirst);
    if (found.too_large() || free.too_large()) {
      return Status(Code::kGrammarTooLarge,
                    in_.fail_at(start, "these strings need too many states").message());
    }
    return builder_.automaton(free, false);
  }

  Source in_;
  const Vocabulary* vocabulary_;
  Builder builder_;
  std::vector<Named> named_;
  std::unordered_map<std::string, size_t> by_name_;
};

}  // namespace

Result<std::shared_ptr<const Grammar>> compile_gbnf(std::string_view text,
                                                    const Vocabulary* vocabulary) {
  return Gbnf(text, vocabulary).parse();
}

}  // namespace sluice::grammar

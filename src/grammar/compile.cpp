// compile(), which calls the front ends, and check().
#include <algorithm>

#include "grammar/automaton.h"
#include "grammar/builder.h"
#include "grammar/front.h"
#include "grammar/json.h"

namespace sluice::grammar {
namespace {

constexpr uint64_t kCheckWorkspace = 8 << 20;
constexpr std::string_view kTokenMarks[] = {"\xFF", "\xEF\xBF\xBD"};

size_t char_length(std::string_view text) {
  size_t n = 1;
  while (n < text.size() && n < 4 && (static_cast<uint8_t>(text[n]) & 0xC0) == 0x80) ++n;
  return n;
}

class Check {
 public:
  Check(Automaton* automaton, State state) : automaton_(automaton), state_(state) {}

  void bytes(std::string_view text) {
    for (const char c : text) {
      if (state_ == kDead) return;
      settle([&] { return automaton_->step(state_, static_cast<uint8_t>(c)); });
    }
  }
  void token(Token id) {
    settle([&] { return automaton_->step_token(state_, id, kDead); });
  }
  // One character, as text or as a token without a name.
  void character(std::string_view text) {
    before_ = state_;
    bytes(text);
    std::swap(before_, state_);
    settle([&] { return automaton_->step_token(state_, -1, before_); });
    before_ = kDead;
  }
  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] bool failed() const { return failed_; }

 private:
  template <typename Step>
  void settle(Step step) {
    State to = step();
    State* const keep[] = {&state_, &before_};
    if (to == kFull && automaton_->compact(keep)) to = step();
    failed_ |= to == kFull;
    state_ = to == kFull ? kDead : to;
  }

  Automaton* automaton_;
  State state_;
  State before_ = kDead;
  bool failed_ = false;
};

}  // namespace

Result<std::shared_ptr<const Grammar>> compile_choice(std::string_view text) {
  const Result<JsonDocument> document = JsonDocument::parse(text);
  if (!document.ok()) return document.status();
  std::vector<std::string> texts;
  for (const uint32_t child : (*document)[0].children) {
    if ((*document)[child].type == JsonType::kString) texts.push_back((*document)[child].text);
  }
  const JsonValue& root = (*document)[0];
  if (root.type != JsonType::kArray || texts.empty() || texts.size() != root.children.size()) {
    return error(Code::kGrammarSyntax, "a choice must be a list of one or more strings");
  }
  Builder b;
  const uint32_t rule = b.new_rule();
  b.define(rule, b.choice(std::move(texts)));
  return b.build();
}

Result<std::shared_ptr<const Grammar>> compile(Kind kind, std::string_view text,
                                               const Vocabulary* vocabulary,
                                               const CompileOptions& options) {
  if (text.size() > kMaxSource) {
    return error(Code::kGrammarTooLarge, "the grammar has %zu bytes; the limit is %zu", text.size(),
                 kMaxSource);
  }
  switch (kind) {
    case Kind::kGbnf:
      return compile_gbnf(text, vocabulary);
    case Kind::kRegex:
      return compile_regex(text);
    case Kind::kChoice:
      return compile_choice(text);
    case Kind::kJson:
      return compile_schema("true", options);
    case Kind::kJsonSchema:
      return compile_schema(text, options);
  }
  return error(Code::kInvalidArgument, "unknown kind of grammar");
}

uint64_t compile_memory() {
  return kMaxNodes * (sizeof(Node) + sizeof(Range)) + (12 << 20);
}

Result<Verdict> check(const Grammar& grammar, std::string_view text) {
  if (grammar.empty()) return Verdict::kReject;
  Result<std::unique_ptr<Automaton>> automaton = Automaton::create(grammar, kCheckWorkspace);
  if (!automaton.ok()) return automaton.status();
  const auto too_large = [] {
    return error(Code::kGrammarTooLarge, "matching this text needs too many states of the grammar");
  };
  const State first = (*automaton)->start();
  if (first == kFull) return too_large();
  Check check(automaton->get(), first);
  while (!text.empty() && check.state() != kDead) {
    size_t n = grammar.has_tokens ? char_length(text) : text.size();
    const auto* const mark = std::find_if(std::begin(kTokenMarks), std::end(kTokenMarks),
                                          [&](std::string_view m) { return text.starts_with(m); });
    if (!grammar.has_tokens) {
      check.bytes(text);
    } else if (mark != std::end(kTokenMarks) && text.size() >= mark->size() + 4) {
      uint32_t id = 0;
      for (size_t i = 0; i < 4; ++i) id = id << 8 | static_cast<uint8_t>(text[mark->size() + i]);
      check.token(static_cast<Token>(id));
      n = mark->size() + 4;
    } else {
      check.character(text.substr(0, n));
    }
    text.remove_prefix(n);
  }
  if (check.failed()) return too_large();
  if (check.state() == kDead) return Verdict::kReject;
  return (*automaton)->final(check.state()) ? Verdict::kMatch : Verdict::kPrefix;
}

}  // namespace sluice::grammar

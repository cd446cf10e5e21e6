// The model's vocabulary as grammars see it, built when a constraint first asks for it.
#pragma once

#include <memory>

#include "grammar/vocabulary.h"
#include "session/memory_plan.h"
#include "tokenizer/tokenizer.h"

namespace sluice::session {

class GrammarVocabulary {
 public:
  // Borrows its arguments.
  GrammarVocabulary(const tokenizer::Tokenizer& tokenizer, const MemoryPlan& plan)
      : source_(tokenizer), plan_(plan) {}
  // Errors: kBudgetTooSmall if the plan has no memory for structured output, kOutOfMemory.
  [[nodiscard]] Result<const grammar::Vocabulary*> get();

 private:
  // Control tokens have no text here; grammars refer to them by name.
  class Source final : public grammar::TokenSource {
   public:
    explicit Source(const tokenizer::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
    [[nodiscard]] int32_t n_tokens() const override { return tokenizer_.n_vocab(); }
    [[nodiscard]] std::string bytes(grammar::Token token) const override {
      return tokenizer_.is_control(token) ? std::string() : tokenizer_.token_bytes(token);
    }
    [[nodiscard]] std::string_view name(grammar::Token token) const override {
      return tokenizer_.piece(token);
    }
    [[nodiscard]] bool ends(grammar::Token token) const override {
      return tokenizer_.is_end_of_generation(token);
    }

   private:
    const tokenizer::Tokenizer& tokenizer_;
  };

  Source source_;
  const MemoryPlan& plan_;
  std::unique_ptr<grammar::Vocabulary> vocabulary_;
};

}  // namespace sluice::session

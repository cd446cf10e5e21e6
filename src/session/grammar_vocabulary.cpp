// Builds the vocabulary for grammars, if the plan has memory for it.
#include "session/grammar_vocabulary.h"

#include <utility>

namespace sluice::session {

Result<const grammar::Vocabulary*> GrammarVocabulary::get() {
  if (plan_.budget.bytes > 0 && plan_.bytes.grammar == 0) {
    return error(Code::kBudgetTooSmall,
                 "structured output is off: load the model without structuredOutput: false, or "
                 "start the server without --no-structured-output");
  }
  if (!vocabulary_) {
    auto made = grammar::Vocabulary::create(source_);
    if (!made.ok()) return made.status();
    vocabulary_ = std::move(*made);
  }
  return static_cast<const grammar::Vocabulary*>(vocabulary_.get());
}

}  // namespace sluice::session

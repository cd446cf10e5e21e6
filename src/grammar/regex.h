// Regular expressions as ECMAScript (with the u flag) and JSON Schema write them, without what is
// no regular language: look-around, back-references and word boundaries are refused by name, as are
// Unicode properties and flags.
#pragma once

#include <string_view>

#include "grammar/builder.h"
#include "grammar/dfa.h"

namespace sluice::grammar {

// Errors: kGrammarSyntax with the position and what is not supported; kGrammarTooLarge.
// As an automaton: `search` finds it anywhere in the text, as JSON Schema's `pattern` does.
[[nodiscard]] Result<Dfa> regex_automaton(std::string_view pattern, bool search);
// As an expression, for the whole text. `*anchored` is set where it has anchors: then it is wrong,
// and the automaton has to be taken.
[[nodiscard]] Result<Expr> regex_expression(std::string_view pattern, Builder* builder,
                                            bool* anchored);

}  // namespace sluice::grammar

// Regular expressions of ECMAScript (with the u flag) and JSON Schema. Look-around,
// back-references, word boundaries, Unicode properties and flags are errors that name them.
#pragma once

#include <string_view>

#include "grammar/builder.h"
#include "grammar/dfa.h"

namespace sluice::grammar {

// Compiles to an automaton. `search`: match anywhere in the text, as JSON Schema's `pattern` does.
// Errors: kGrammarSyntax with the position and what is unsupported; kGrammarTooLarge.
[[nodiscard]] Result<Dfa> regex_automaton(std::string_view pattern, bool search);
// Compiles to an expression for the whole text. If *anchored is set, the pattern has anchors and
// the result is invalid; use regex_automaton.
[[nodiscard]] Result<Expr> regex_expression(std::string_view pattern, Builder* builder,
                                            bool* anchored);

}  // namespace sluice::grammar

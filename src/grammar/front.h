// The front ends behind compile() (grammar.h). Errors: those of compile().
#pragma once

#include <memory>
#include <string_view>

#include "grammar/grammar.h"

namespace sluice::grammar {

[[nodiscard]] Result<std::shared_ptr<const Grammar>> compile_gbnf(std::string_view text,
                                                                  const Vocabulary* vocabulary);
[[nodiscard]] Result<std::shared_ptr<const Grammar>> compile_regex(std::string_view text);
[[nodiscard]] Result<std::shared_ptr<const Grammar>> compile_choice(std::string_view text);
[[nodiscard]] Result<std::shared_ptr<const Grammar>> compile_schema(std::string_view text,
                                                                    const CompileOptions& options);

}  // namespace sluice::grammar

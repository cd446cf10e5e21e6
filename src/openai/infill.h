// Fill in the middle: the prompt from the text before and after a gap, for models that were trained
// for it. Their vocabularies have tokens that mark the parts.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "chat/template.h"
#include "openai/request.h"

namespace sluice::openai {

// The texts of a vocabulary's fill-in-the-middle tokens; "": none.
struct InfillTokens {
  std::string prefix, suffix, middle;
  std::string repository, file;  // before names, for models that know several files

  [[nodiscard]] bool usable() const {
    return !prefix.empty() && !suffix.empty() && !middle.empty();
  }
};

// Looks for the tokens that are still missing in *out under the names that llama.cpp knows.
// `is_token`: whether a text is one token.
void find_infill_tokens(const std::function<bool(std::string_view)>& is_token, InfillTokens* out);

// Drops the first half of the files.
void drop_files(Infill* infill);

// The prompt of a request that has an infill. Errors: `tokens` are not usable.
[[nodiscard]] Problem infill_prompt(const InfillTokens& tokens, const Infill& infill,
                                    chat::Prompt* out);

}  // namespace sluice::openai

// Checks the requests of Anthropic's Messages API and turns them into chats: content blocks become
// messages, tools and their choice get the form that chats have.
#pragma once

#include <string_view>

#include "openai/request.h"

namespace sluice::anthropic {

// Each reads a request body into *out. Returns an error, or nothing.
[[nodiscard]] openai::Problem read_message(std::string_view body, openai::GenerateRequest* out);
// The fields that make the prompt, for count_tokens.
[[nodiscard]] openai::Problem read_count(std::string_view body, openai::GenerateRequest* out);

}  // namespace sluice::anthropic

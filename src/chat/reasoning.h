// The reasoning formats of models: the marks around reasoning, as the models' chat templates write
// them, and the marks around the response proper, which are dropped.
#pragma once

#include <string_view>

namespace sluice::chat {

// In the marks '#' is a word. An empty mark does not exist.
struct ReasoningFormat {
  std::string_view taught;  // templates that use the format match this pattern (template_text.h)
  std::string_view open, close;
  std::string_view turn;      // starts another message of the same response
  std::string_view response;  // starts the response proper
  std::string_view ends[2];   // end the response proper
  bool lines = false;         // the marks stand on lines of their own
};

// The format of a template: <think> if it names none.
[[nodiscard]] const ReasoningFormat& reasoning_format(std::string_view source);

// Whether the template writes reasoning at all.
[[nodiscard]] bool teaches_reasoning(std::string_view source);

}  // namespace sluice::chat

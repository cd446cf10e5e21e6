// Grammars that constrain a response: free reasoning and text, then tool calls in the model's own
// format whose arguments match their schemas, or a JSON value. The GBNF has three extra symbols for
// this (src/grammar/gbnf.cpp): %json and %spaced, a value that matches a schema, and %until, text
// that contains none of the given strings.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "chat/marks.h"
#include "chat/reasoning.h"
#include "chat/tool_formats.h"

namespace sluice::chat {

// A function that the model may call.
struct Tool {
  std::string name;
  std::string parameters;  // JSON schema; "" or "null": none
  bool strict = false;     // arguments must match the schema
};

// What a grammar is for.
struct ResponseShape {
  const ToolFormat* format = nullptr;  // null: no calls
  std::span<const Tool> tools;
  const ReasoningFormat* reasoning = nullptr;
  bool thinks = false;                      // the model may reason
  bool thinking = false;                    // the prompt ends inside reasoning
  std::string_view begun;                   // start of the response that is already in the prompt
  bool required = false;                    // a call is required
  bool parallel = true;                     // several calls are allowed
  std::string schema;                       // JSON schema of text that is not a call; "": free text
  std::span<const std::string_view> loose;  // control tokens that are allowed in free text
};

// GBNF of a response. Errors: kSchemaUnsupported, kInvalidArgument.
[[nodiscard]] Result<std::string> answer_grammar(const ResponseShape& shape, const Marks& marks);
// The same for the harmony format, which ignores `format` and `reasoning`.
[[nodiscard]] Result<std::string> harmony_grammar(const ResponseShape& shape, const Marks& marks);

// The text that starts a call, around the function's name. Without a name: the text up to it.
struct CallOpening {
  std::string before, name, behind;
};
[[nodiscard]] CallOpening call_opening(const ToolFormat& format, std::string_view name);
[[nodiscard]] CallOpening harmony_opening(std::string_view name);

}  // namespace sluice::chat

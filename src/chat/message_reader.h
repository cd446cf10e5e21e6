// Reads a response of one message: reasoning between marks, tool calls in the formats of
// tool_formats.h, and content. Text that only resembles a call stays text, so no output is lost,
// and a mark inside a value does not end a call.
#pragma once

#include <forward_list>
#include <string>
#include <vector>

#include "chat/reasoning.h"
#include "chat/response_reader.h"
#include "chat/tool_formats.h"
#include "chat/tool_grammar.h"

namespace sluice::chat {

// How to read; the same for every response of a request.
struct MessageFormat {
  MessageFormat() = default;
  MessageFormat(const MessageFormat&) = delete;
  MessageFormat& operator=(const MessageFormat&) = delete;

  // All marks are encoded (Marks::encode()), which makes new texts of those with control tokens.
  std::forward_list<std::string> encoded;
  std::vector<ToolFormat> tool_formats;
  std::vector<std::string_view> tool_marks;      // of each format
  std::vector<Tool> declared;                    // functions
  std::string_view open, close, turn, response;  // reasoning
  std::vector<std::string_view> ends;
  std::string quote;     // kGemmaQuote
  bool separate = true;  // false: reasoning is part of the content
  bool thinking = false;

  void set_reasoning(const ReasoningFormat& format, const Marks& marks);
  void set_tools(std::vector<ToolFormat> formats, const Marks& marks);
  // The function of that name; null if there is none.
  [[nodiscard]] const Tool* tool(std::string_view name) const;
};

class MessageReader : public ResponseReader {
 public:
  MessageReader(const MessageFormat& format, uint64_t id_seed, bool short_ids);

 private:
  using Calls = std::optional<std::vector<ToolCall>>;
  using Text = std::optional<std::string>;

  Step<bool> run() override;
  Step<bool> frame();
  Step<bool> reasoning();
  Step<bool> inline_reasoning();
  Step<Calls> marked(int c);
  Step<Calls> objects(const ToolFormat* format);
  Step<Calls> named(const ToolFormat* format);
  Step<std::optional<ToolCall>> call(const ToolFormat* format);
  Step<Text> params(const ToolFormat* format, std::string_view schema);
  Step<Calls> bare_calls();
  Step<Text> bare_members();
  [[nodiscard]] std::optional<ToolCall> as_call(std::string_view value);

  const MessageFormat& format_;
  bool first_[256] = {};   // bytes that a mark may start with
  bool fresh_ = true;      // at the start of a message
  bool blank_ = true;      // only white space since the start, the reasoning or the last call
  bool any_ = false;       // a call was read
  bool reasoned_ = false;  // reasoning was read
  bool responds_ = false;  // inside the marks of the response proper
};

// The value of a parameter that the model wrote as `text`, as JSON. `type`: what the format itself
// states of its type; "": nothing. `schema`: the function's.
[[nodiscard]] std::string parameter_value(const std::string& text, std::string_view type,
                                          std::string_view schema, const std::string& name);

}  // namespace sluice::chat

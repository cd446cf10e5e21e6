// Puts the messages of a chat together from the items of another API, as the JSON text that chats
// have. What an assistant has written since the last message of another role becomes one message:
// reasoning, text and tool calls. Texts are passed on as the client sent them.
#pragma once

#include <string>
#include <string_view>

namespace sluice::openai {

class MessageList {
 public:
  // A message that is not the assistant's. `role` is text, `content` JSON.
  void add(std::string_view role, std::string_view content);
  // The result of a tool call. Both are JSON; "": absent.
  void add_result(std::string_view call_id, std::string_view content);
  // A part of the assistant's message, with a type that chat/message_forms.cpp knows. `text`: it is
  // a part of the content, not of the reasoning.
  void add_part(std::string_view part, bool text);
  // Reasoning of the assistant: a text, as JSON.
  void add_reasoning(std::string_view text);
  // The assistant's content: a text, or a list of parts.
  void add_content(std::string_view content);
  // All three are JSON; `arguments` is a string.
  void add_call(std::string_view id, std::string_view name, std::string_view arguments);
  // The assistant's message is complete.
  void end_assistant();

  // Whether the assistant's message so far has a content, more than reasoning, or calls.
  [[nodiscard]] bool has_text() const { return has_text_; }
  [[nodiscard]] bool has_calls() const { return !calls_.empty(); }
  // The list.
  [[nodiscard]] std::string take();

 private:
  void append(std::string_view message);

  std::string list_;
  bool assistant_ = false, has_text_ = false;
  std::string parts_, calls_;
};

}  // namespace sluice::openai

#include "openai/message_list.h"

#include "jinja/json_text.h"

namespace sluice::openai {
namespace {

std::string text_or_empty(std::string_view json) {
  return json.empty() ? R"("")" : std::string(json);
}

}  // namespace

void MessageList::append(std::string_view message) {
  append_json_item(message, &list_);
}

void MessageList::add(std::string_view role, std::string_view content) {
  end_assistant();
  append(R"({"role":)" + json_quote(role) + R"(,"content":)" + text_or_empty(content) + '}');
}

void MessageList::add_result(std::string_view call_id, std::string_view content) {
  end_assistant();
  append(R"({"role":"tool","tool_call_id":)" + text_or_empty(call_id) + R"(,"content":)" +
         text_or_empty(content) + '}');
}

void MessageList::add_part(std::string_view part, bool text) {
  assistant_ = true;
  has_text_ = has_text_ || text;
  append_json_item(part, &parts_);
}

void MessageList::add_reasoning(std::string_view text) {
  add_part(R"({"type":"reasoning","text":)" + std::string(text) + '}', /*text=*/false);
}

void MessageList::add_content(std::string_view content) {
  assistant_ = has_text_ = true;
  if (json_type(content) == JsonType::kString) {
    add_part(R"({"type":"text","text":)" + std::string(content) + '}', /*text=*/true);
  }
  for (const std::string_view part : json_items(content)) add_part(part, /*text=*/true);
}

void MessageList::add_call(std::string_view id, std::string_view name, std::string_view arguments) {
  assistant_ = true;
  append_json_item(R"({"id":)" + text_or_empty(id) + R"(,"type":"function","function":{"name":)" +
                       std::string(name) + R"(,"arguments":)" + text_or_empty(arguments) + "}}",
                   &calls_);
}

void MessageList::end_assistant() {
  if (!assistant_) return;
  std::string message = R"({"role":"assistant","content":)";
  message += parts_.empty() ? R"("")" : '[' + parts_ + ']';
  if (has_calls()) message += R"(,"tool_calls":[)" + calls_ + ']';
  append(message + '}');
  assistant_ = has_text_ = false;
  parts_.clear();
  calls_.clear();
}

std::string MessageList::take() {
  end_assistant();
  return '[' + list_ + ']';
}

}  // namespace sluice::openai

// The fields of each request.
#include "anthropic/request.h"

#include <string>
#include <vector>

#include "jinja/json_text.h"
#include "openai/body.h"
#include "openai/message_list.h"
#include "openai/request_chat.h"
#include "openai/request_fields.h"

namespace sluice::anthropic {
namespace {

using openai::ApiError;
using openai::Body;
using openai::Fields;
using openai::GenerateRequest;
using openai::Json;
using openai::MessageList;
using openai::Problem;
using openai::ToolChoice;

constexpr openai::ToolForm kTools = {.type = "custom",
                                     .schema = "input_schema",
                                     .flat = true,
                                     .type_is_optional = true,
                                     .own_choice = true};

Problem check_content(const Json* content) {
  if (content != nullptr && (content->is_string() || content->is_array())) return {};
  return ApiError{.message = "content must be a string or a list of blocks."};
}

// Adds one block of a message. `parts`: blocks of the user's next message, which are passed on.
Problem read_block(const Json& block, std::string_view text, bool assistant, MessageList* list,
                   std::string* parts) {
  Fields fields(block, text);
  std::string type, id, name;
  fields.read("type", &type);
  if (type.empty()) fields.fail("type", "each block of a content must be an object with a type.");
  if (type == "tool_use" && assistant) {
    fields.read("id", &id);
    fields.read("name", &name);
    const Json* input = fields.take("input");
    if (id.empty() || name.empty() || input == nullptr || !input->is_object()) {
      fields.fail("input", "a block of type 'tool_use' must have an id, a name and an input.");
    } else {
      list->add_call(fields.text("id"), fields.text("name"), json_quote(fields.text("input")));
    }
  } else if (type == "tool_result" && !assistant) {
    fields.read("tool_use_id", &id);
    const Json* content = fields.take("content");
    if (id.empty()) {
      fields.fail("tool_use_id", "a block of type 'tool_result' must have a tool_use_id.");
    }
    if (content != nullptr) fields.fail_inside("content", check_content(content));
    if (!parts->empty()) list->add("user", '[' + *parts + ']');
    parts->clear();
    if (fields.ok()) list->add_result(fields.text("tool_use_id"), fields.text("content"));
  } else if (assistant) {
    // Redacted reasoning can be read by Anthropic's servers alone.
    if (type != "redacted_thinking") list->add_part(text, type != "thinking");
  } else {
    append_json_item(text, parts);
  }
  return fields.first_problem();
}

// Adds one message.
Problem read_message(const Json& message, std::string_view text, MessageList* list) {
  Fields fields(message, text);
  std::string role;
  fields.read("role", {"user", "assistant", "system"}, &role);
  if (role.empty()) fields.fail("role", "it must be an object with a role.");
  const Json* content = fields.take("content");
  if (fields.ok()) {
    if (const Problem problem = check_content(content)) fields.fail("content", problem->message);
  }
  if (!fields.ok()) return fields.first_problem();
  const std::string_view given = fields.text("content");
  const bool assistant = role == "assistant";
  if (content->is_string() || role == "system") {
    if (assistant) {
      list->add_content(given);
    } else {
      list->add(role, given);
    }
  } else {
    const std::vector<std::string_view> blocks = json_items(given);
    std::string parts;
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (Problem problem = read_block((*content)[i], blocks[i], assistant, list, &parts)) {
        return problem;
      }
    }
    if (!parts.empty()) list->add(role, '[' + parts + ']');
  }
  return {};
}

void read_conversation(Fields& fields, GenerateRequest* out) {
  const Json* messages = fields.take("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    return fields.fail("messages", "'messages' must be a list of at least one message.");
  }
  MessageList list;
  if (const Json* system = fields.take("system")) {
    fields.fail_inside("system", check_content(system));
    list.add("system", fields.text("system"));
  }
  const std::vector<std::string_view> texts = json_items(fields.text("messages"));
  for (size_t i = 0; i < texts.size(); ++i) {
    if (const Problem problem = read_message((*messages)[i], texts[i], &list)) {
      return fields.fail("messages", "'messages[" + std::to_string(i) + "]': " + problem->message);
    }
    // The response continues a text of the assistant that ends the messages.
    const bool last = i + 1 == texts.size();
    out->continue_final_message = last && list.has_text() && !list.has_calls();
    if (!last) list.end_assistant();
  }
  out->add_generation_prompt = !out->continue_final_message;
  out->messages = list.take();
}

void read_choice(Fields& fields, GenerateRequest* out) {
  const Json* choice = fields.take("tool_choice");
  if (choice == nullptr) return;
  Fields inner(*choice, fields.text("tool_choice"));
  std::string type, name;
  bool alone = false;
  inner.read("type", {"auto", "any", "tool", "none"}, &type);
  inner.read("name", &name);
  inner.read("disable_parallel_tool_use", &alone);
  if (type.empty()) inner.fail("type", "it must have a type.");
  if ((type == "tool") == name.empty()) inner.fail("name", "'name' belongs to type 'tool'.");
  fields.fail_inside("tool_choice", inner.finish());
  if (!name.empty()) out->tool_choice.names = {name};
  out->parallel_tool_calls = !alone;
  if (type == "none") out->tool_choice.mode = ToolChoice::Mode::kNone;
  if (type == "any" || type == "tool") out->tool_choice.mode = ToolChoice::Mode::kRequired;
}

void read_thinking(Fields& fields, GenerateRequest* out) {
  const Json* thinking = fields.take("thinking");
  if (thinking == nullptr) return;
  Fields inner(*thinking, fields.text("thinking"));
  std::string type;
  int64_t budget = 0;
  inner.read("type", {"enabled", "disabled", "adaptive", "between_tools"}, &type);
  inner.read("budget_tokens", 0, INT32_MAX, &budget);  // templates know no number of tokens
  inner.ignore({"display"});
  fields.fail_inside("thinking", inner.finish());
  if (type == "enabled" || type == "disabled") {
    openai::set_variable("enable_thinking", type == "enabled" ? "true" : "false", out);
  }
}

void read_output_config(Fields& fields, GenerateRequest* out) {
  const Json* config = fields.take("output_config");
  if (config == nullptr) return;
  Fields inner(*config, fields.text("output_config"));
  openai::read_effort(inner, "effort", out);
  openai::read_response_format(inner, "format", /*flat=*/true, &out->options);
  inner.ignore({"task_budget"});
  fields.fail_inside("output_config", inner.finish());
}

Problem read_request(std::string_view body, bool counts, GenerateRequest* out) {
  Body fields(body);
  if (!fields.ok()) return fields.finish();
  out->chat = true;
  read_conversation(fields, out);
  if (!counts && fields.take("max_tokens") == nullptr) {
    fields.fail("max_tokens", "You must provide 'max_tokens'.");
  }
  fields.read("max_tokens", 0, INT32_MAX, &out->options.max_tokens);
  openai::read_sampling(fields, out);
  openai::read_stop(fields, "stop_sequences", out);
  fields.read("stream", &out->stream);
  openai::read_variables(fields, out);
  read_thinking(fields, out);
  read_output_config(fields, out);
  read_choice(fields, out);
  openai::read_tools(fields, kTools, out);
  fields.ignore({"cache_control", "betas", "context_management", "diagnostics", "inference_geo",
                 "speed", "user_profile_id", "workspace_id"});
  fields.refuse({"container", "mcp_servers"});
  return fields.finish();
}

}  // namespace

Problem read_message(std::string_view body, GenerateRequest* out) {
  return read_request(body, /*counts=*/false, out);
}

Problem read_count(std::string_view body, GenerateRequest* out) {
  return read_request(body, /*counts=*/true, out);
}

}  // namespace sluice::anthropic

// The request of /v1/responses. Its items become the messages of a chat.
#include <array>
#include <string>

#include "jinja/json_text.h"
#include "openai/body.h"
#include "openai/message_list.h"
#include "openai/request_chat.h"
#include "openai/request_fields.h"

namespace sluice::openai {
namespace {

constexpr ToolForm kTools = {.flat = true};

// Members of a request that its response repeats, and their defaults.
constexpr std::array<const char*, 2> kEchoed[] = {
    {"instructions", "null"},
    {"max_output_tokens", "null"},
    {"metadata", "{}"},
    {"parallel_tool_calls", "true"},
    {"reasoning", R"({"effort":null,"summary":null})"},
    {"temperature", "null"},
    {"text", R"({"format":{"type":"text"}})"},
    {"tool_choice", R"("auto")"},
    {"tools", "[]"},
    {"top_logprobs", "0"},
    {"top_p", "null"},
    {"truncation", R"("disabled")"},
    {"user", "null"},
};

// Adds one item of the input.
Problem read_item(const Json& item, std::string_view text, MessageList* list) {
  Fields fields(item, text);
  std::string type = "message", role, id;
  fields.read("type", &type);
  const auto need_text = [&](const char* key) {
    const Json* value = fields.take(key);
    if (value == nullptr || !value->is_string()) {
      fields.fail(key, "'" + std::string(key) + "' must be a string.");
    }
  };
  const auto need_content = [&](const char* key) {
    const Json* value = fields.take(key);
    if (value == nullptr || !(value->is_string() || value->is_array())) {
      fields.fail(key, "'" + std::string(key) + "' must be a string or a list of parts.");
    }
  };
  if (type == "message") {
    fields.read("role", {"user", "assistant", "system", "developer"}, &role);
    if (role.empty()) fields.fail("role", "It must have a role.");
    need_content("content");
    if (!fields.ok()) return fields.first_problem();
    if (role != "assistant") {
      list->add(role, fields.text("content"));
    } else {
      if (list->has_text() || list->has_calls()) list->end_assistant();
      list->add_content(fields.text("content"));
    }
  } else if (type == "function_call") {
    need_text("call_id");
    need_text("name");
    need_text("arguments");
    if (!fields.ok()) return fields.first_problem();
    list->add_call(fields.text("call_id"), fields.text("name"), fields.text("arguments"));
  } else if (type == "function_call_output") {
    need_text("call_id");
    need_content("output");
    if (fields.ok()) list->add_result(fields.text("call_id"), fields.text("output"));
  } else if (type == "reasoning") {
    if (list->has_text() || list->has_calls()) list->end_assistant();
    const std::string_view content = fields.text("content");
    const bool whole = !json_items(content).empty();
    for (const std::string_view part : json_items(whole ? content : fields.text("summary"))) {
      const std::string_view words = member_text(part, "text");
      if (json_type(words) != JsonType::kString) {
        return ApiError{.message = "each part of a reasoning item must have a text."};
      }
      list->add_reasoning(words);
    }
  } else if (type == "item_reference") {
    // Reasoning is a part of the response that few templates want back.
    fields.read("id", &id);
    if (!id.starts_with("rs_")) {
      fields.fail("type",
                  "an item cannot be named by its id, because nothing is stored here: send the "
                  "item itself. With \"store\": false, clients do that.");
    }
  } else {
    fields.fail("type", "items of type '" + type.substr(0, 64) + "' are not supported.");
  }
  return fields.first_problem();
}

void read_input(Fields& fields, GenerateRequest* out) {
  const Json* input = fields.take("input");
  const Json* instructions = fields.take("instructions");
  MessageList list;
  if (instructions != nullptr) {
    if (!instructions->is_string()) fields.fail("instructions", "'instructions' must be a string.");
    if (*instructions != "") list.add("system", fields.text("instructions"));
  }
  if (input != nullptr && input->is_string()) {
    list.add("user", fields.text("input"));
  } else if (input == nullptr || !input->is_array() || input->empty()) {
    fields.fail("input", "'input' must be a string or a list of items.");
  } else {
    const std::vector<std::string_view> texts = json_items(fields.text("input"));
    for (size_t i = 0; i < texts.size(); ++i) {
      const Problem problem = read_item((*input)[i], texts[i], &list);
      if (!problem) continue;
      return fields.fail("input", "'input[" + std::to_string(i) + "]': " + problem->message);
    }
  }
  out->messages = list.take();
}

void read_text(Fields& fields, GenerateRequest* out) {
  const Json* text = fields.take("text");
  if (text == nullptr) return;
  Fields inner(*text, fields.text("text"));
  read_response_format(inner, "format", /*flat=*/true, &out->options);
  std::string verbosity;
  inner.read("verbosity", {"medium"}, &verbosity);
  fields.fail_inside("text", inner.finish());
}

void read_reasoning(Fields& fields, GenerateRequest* out) {
  const Json* reasoning = fields.take("reasoning");
  if (reasoning == nullptr) return;
  Fields inner(*reasoning, fields.text("reasoning"));
  inner.ignore({"summary", "generate_summary", "context", "mode"});
  read_effort(inner, "effort", out);
  fields.fail_inside("reasoning", inner.finish());
}

void read_include(Fields& fields, GenerateRequest* out) {
  const Json* include = fields.take("include");
  int32_t top = 0;
  fields.read("top_logprobs", 0, kMaxTopLogprobs, &top);
  bool wanted = false;
  if (include != nullptr && !include->is_array()) {
    return fields.fail("include", "'include' must be a list.");
  }
  // Other values are about tools of OpenAI's servers, or about encrypted reasoning: the response
  // has its reasoning as text.
  for (size_t i = 0; include != nullptr && i < include->size(); ++i) {
    wanted = wanted || (*include)[i] == "message.output_text.logprobs";
  }
  if (wanted) out->options.logprobs = top;
  if (top > 0 && !wanted) {
    fields.fail("top_logprobs",
                "'top_logprobs' needs 'include': [\"message.output_text.logprobs\"].");
  }
}

}  // namespace

Problem read_responses(std::string_view body, GenerateRequest* out) {
  Body fields(body);
  if (!fields.ok()) return fields.finish();
  out->chat = true;
  for (const char* key : {"previous_response_id", "conversation", "prompt"}) {
    if (fields.take(key) == nullptr) continue;
    fields.fail(key, "'" + std::string(key) +
                         "' names something stored, and nothing is stored here: send the whole "
                         "input.");
  }
  bool background = false;
  fields.read("background", &background);
  if (background) {
    fields.fail("background", "'background' needs stored responses, and nothing is stored here.");
  }
  read_input(fields, out);
  read_sampling(fields, out);
  fields.read("max_output_tokens", -1, INT32_MAX, &out->options.max_tokens);
  fields.read("stream", &out->stream);
  fields.ignore({"stream_options", "max_tool_calls"});
  std::string truncation;
  fields.read("truncation", {"auto", "disabled"}, &truncation);
  read_stop(fields, "stop", out);
  read_variables(fields, out);
  read_reasoning(fields, out);
  read_text(fields, out);
  read_include(fields, out);
  read_tools(fields, kTools, out);
  fields.read("parallel_tool_calls", &out->parallel_tool_calls);
  fields.refuse({"context_management", "moderation"});
  for (const auto& [key, value] : kEchoed) {
    const std::string given = json_compact(fields.text(key));
    out->echo += '"' + std::string(key) + "\":" + (given.empty() ? value : given) + ',';
  }
  return fields.finish();
}

}  // namespace sluice::openai

// Checks of messages, tools and structured output.
#include "openai/request_chat.h"

#include <algorithm>
#include <utility>

#include "jinja/json_text.h"

namespace sluice::openai {
namespace {

Problem rule(std::string message) {
  return ApiError{.message = std::move(message)};
}

const Json* member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

const std::string* string_member(const Json& object, const char* key) {
  const Json* value = member(object, key);
  return value == nullptr ? nullptr : value->get_ptr<const std::string*>();
}

// Parts of other types are for the model: it may read pictures.
Problem check_content(const Json& content) {
  if (content.is_string()) return {};
  if (!content.is_array()) return rule("content must be a string or a list of parts.");
  for (const Json& part : content) {
    const std::string* type = string_member(part, "type");
    if (type == nullptr) return rule("each part of a content must be an object with a type.");
    if (*type == "text" && string_member(part, "text") == nullptr) {
      return rule("a part of type 'text' must have a text.");
    }
  }
  return {};
}

Problem check_message(const Json& message) {
  const std::string* role = string_member(message, "role");
  if (role == nullptr || role->empty()) return rule("it must be an object with a role.");
  if (const Json* content = member(message, "content")) {
    if (Problem problem = check_content(*content)) return problem;
  }
  const Json* calls = member(message, "tool_calls");
  if (calls != nullptr && !calls->is_array()) return rule("tool_calls must be a list.");
  return {};
}

// A function as tools and choices name it.
Problem check_function(const Json& tool, const ToolForm& form, const std::string** name) {
  const std::string* type = string_member(tool, "type");
  if (!tool.is_object() || (type == nullptr && !form.type_is_optional)) {
    return rule("it must be an object with a type.");
  }
  if (type != nullptr && *type != form.type) {
    return rule("the type '" + type->substr(0, 64) + "' is not supported, only '" + form.type +
                "'.");
  }
  const Json* function = form.flat ? &tool : member(tool, "function");
  *name = function == nullptr ? nullptr : string_member(*function, "name");
  if (*name == nullptr || (*name)->empty()) {
    return rule(form.flat ? "it must have a name." : "'function' must have a name.");
  }
  return {};
}

Problem check_tool(const Json& tool, const ToolForm& form, std::vector<std::string>* names) {
  const std::string* name = nullptr;
  if (Problem problem = check_function(tool, form, &name)) return problem;
  const Json& function = form.flat ? tool : *member(tool, "function");
  const Json* parameters = member(function, form.schema);
  const Json* strict = member(function, "strict");
  if (parameters != nullptr && !parameters->is_object()) {
    return rule("'" + std::string(form.schema) + "' must be a JSON schema.");
  }
  if (strict != nullptr && !strict->is_boolean()) return rule("'strict' must be true or false.");
  if (member(function, "description") != nullptr &&
      string_member(function, "description") == nullptr) {
    return rule("'description' must be a string.");
  }
  names->push_back(*name);
  return {};
}

// The text of a tool in the form of chats.
std::string chat_tool(std::string_view tool, const ToolForm& form) {
  std::string out = R"({"type":"function","function":{)";
  const std::pair<const char*, const char*> names[] = {{"name", "name"},
                                                       {"description", "description"},
                                                       {"parameters", form.schema},
                                                       {"strict", "strict"}};
  for (const auto& [to, from] : names) {
    const std::string_view value = member_text(tool, from);
    if (value.empty()) continue;
    out += (out.back() == '{' ? "\"" : ",\"") + std::string(to) + "\":" + std::string(value);
  }
  return out + "}}";
}

Problem read_mode(const std::string& mode, ToolChoice* out) {
  using Mode = ToolChoice::Mode;
  if (mode == "auto") return {};
  if (mode != "none" && mode != "required") {
    return rule("it must be 'none', 'auto', 'required' or name a function.");
  }
  out->mode = mode == "none" ? Mode::kNone : Mode::kRequired;
  return {};
}

// {"type": "allowed_tools", "allowed_tools": {"mode", "tools": [...]}}
Problem read_allowed(const Json& choice, const ToolForm& form, ToolChoice* out) {
  const Json* allowed = member(choice, "allowed_tools");
  if (allowed == nullptr) allowed = &choice;  // as in the Responses API
  const std::string* mode = string_member(*allowed, "mode");
  const Json* tools = member(*allowed, "tools");
  if (mode == nullptr || *mode == "none" || tools == nullptr || !tools->is_array() ||
      tools->empty()) {
    return rule("'allowed_tools' must have a mode, 'auto' or 'required', and a list of tools.");
  }
  for (const Json& tool : *tools) {
    const std::string* name = nullptr;
    if (Problem problem = check_function(tool, form, &name)) return problem;
    out->names.push_back(*name);
  }
  return read_mode(*mode, out);
}

Problem read_choice(const Json& choice, const ToolForm& form, ToolChoice* out) {
  if (const auto* mode = choice.get_ptr<const std::string*>()) return read_mode(*mode, out);
  const std::string* type = string_member(choice, "type");
  if (type != nullptr && *type == "allowed_tools") return read_allowed(choice, form, out);
  const std::string* name = nullptr;
  if (Problem problem = check_function(choice, form, &name)) return problem;
  *out = {ToolChoice::Mode::kRequired, {*name}};
  return {};
}

bool is_schema(const Json* value) {
  return value != nullptr && (value->is_object() || value->is_boolean());
}

void bind(Fields& fields, const char* key, grammar::Kind kind, std::string text,
          generate::Options* out) {
  if (out->constraint) {
    return fields.fail(key, "'" + std::string(key) + "' cannot be used with another format.");
  }
  out->constraint = {kind, std::move(text), {}};
}

constexpr const char* kAnyObject = R"({"type":"object"})";

// The JSON schema that a response format asks for; "": none. `flat`: without `json_schema`.
Problem read_format(const Json& format, std::string_view text, bool flat, std::string* schema) {
  Fields fields(format, text);
  std::string type;
  if (flat) fields.ignore({"name", "description", "strict"});
  fields.read("type", {"text", "json_object", "json_schema"}, &type);
  const Json* direct = fields.take("schema");  // llama-server's
  const Json* named = flat ? nullptr : fields.take("json_schema");
  if (Problem problem = fields.finish()) return problem;
  if (type.empty()) return rule("It must have a type.");
  if (type == "text") return {};
  if (named != nullptr && type == "json_schema") {
    const std::string_view outer = fields.text("json_schema");
    Fields members(*named, outer);
    members.ignore({"name", "description", "strict"});
    direct = members.take("schema");
    if (Problem problem = members.finish()) return problem;
    *schema = members.text("schema");
  } else {
    *schema = fields.text("schema");
  }
  if (type == "json_object" && direct == nullptr) *schema = kAnyObject;
  if (direct == nullptr ? type == "json_schema" : !is_schema(direct)) {
    return rule("'schema' must be a JSON schema.");
  }
  return {};
}

}  // namespace

void read_messages(Fields& fields, GenerateRequest* out) {
  const Json* messages = fields.take("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty()) {
    return fields.fail("messages", "'messages' must be a list of at least one message.");
  }
  for (size_t i = 0; i < messages->size(); ++i) {
    if (const Problem problem = check_message((*messages)[i])) {
      return fields.fail("messages", "'messages[" + std::to_string(i) + "]': " + problem->message);
    }
  }
  out->messages = fields.text("messages");
}

void read_tools(Fields& fields, const ToolForm& form, GenerateRequest* out) {
  const Json* tools = fields.take("tools");
  const Json* choice = form.own_choice ? nullptr : fields.take("tool_choice");
  std::vector<std::string> names;
  if (tools != nullptr && (!tools->is_array() || tools->size() > kMaxTools)) {
    return fields.fail(
        "tools", "'tools' must be a list of at most " + std::to_string(kMaxTools) + " functions.");
  }
  for (size_t i = 0; tools != nullptr && i < tools->size(); ++i) {
    if (const Problem problem = check_tool((*tools)[i], form, &names)) {
      return fields.fail("tools", "'tools[" + std::to_string(i) + "]': " + problem->message);
    }
  }
  if (choice != nullptr) {
    if (const Problem problem = read_choice(*choice, form, &out->tool_choice)) {
      return fields.fail_inside("tool_choice", problem);
    }
  }
  for (const std::string& name : out->tool_choice.names) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    return fields.fail("tool_choice", "'tool_choice' names '" + name.substr(0, 64) +
                                          "', which is not in 'tools'.");
  }
  if (out->tool_choice.mode == ToolChoice::Mode::kRequired && names.empty()) {
    return fields.fail("tool_choice", "'tool_choice' requires a call, but 'tools' is empty.");
  }
  if (names.empty()) return;
  out->tools = fields.text("tools");
  if (!form.flat) return;
  std::string list = "[";
  for (const std::string_view tool : json_items(out->tools)) {
    list += (list.size() > 1 ? "," : "") + chat_tool(tool, form);
  }
  out->tools = list + "]";
}

void read_variables(Fields& fields, GenerateRequest* out) {
  const Json* variables = fields.take("chat_template_kwargs");
  if (variables != nullptr && !variables->is_object()) {
    fields.fail("chat_template_kwargs", "'chat_template_kwargs' must be an object.");
  }
  out->variables = fields.text("chat_template_kwargs");
}

void set_variable(std::string_view name, std::string_view value, GenerateRequest* out) {
  std::string& variables = out->variables;
  if (json_member(variables, name)) return;
  const bool alone = json_members(variables).empty();
  variables = "{\"" + std::string(name) + "\":" + std::string(value) +
              (alone ? "}" : "," + variables.substr(variables.find('{') + 1));
}

void read_effort(Fields& fields, const char* key, GenerateRequest* out) {
  std::string effort;
  fields.read(key, {"none", "minimal", "low", "medium", "high", "xhigh", "max"}, &effort);
  if (effort == "none") {
    set_variable("enable_thinking", "false", out);
  } else if (!effort.empty()) {
    set_variable("reasoning_effort", '"' + effort + '"', out);
  }
}

void read_template_fields(Fields& fields, GenerateRequest* out) {
  read_variables(fields, out);
  read_effort(fields, "reasoning_effort", out);
  const bool given = fields.take("add_generation_prompt") != nullptr;
  fields.read("add_generation_prompt", &out->add_generation_prompt);
  fields.read("continue_final_message", &out->continue_final_message);
  if (out->continue_final_message && given && out->add_generation_prompt) {
    fields.fail("continue_final_message",
                "'continue_final_message' cannot be used with 'add_generation_prompt'.");
  }
  if (out->continue_final_message) out->add_generation_prompt = false;
  fields.read("parse_special_in_content", &out->parse_special_in_content);
  fields.refuse({"chat_template"});  // a program, which clients must not run on the server
}

void read_response_format(Fields& fields, const char* key, bool flat, generate::Options* out) {
  const Json* format = fields.take(key);
  if (format == nullptr) return;
  std::string schema;
  fields.fail_inside(key, read_format(*format, fields.text(key), flat, &schema));
  if (!schema.empty()) bind(fields, key, grammar::Kind::kJsonSchema, std::move(schema), out);
}

void read_constraint(Fields& fields, generate::Options* out) {
  read_response_format(fields, "response_format", /*flat=*/false, out);
  if (const Json* schema = fields.take("json_schema")) {
    if (!is_schema(schema)) fields.fail("json_schema", "'json_schema' must be a JSON schema.");
    bind(fields, "json_schema", grammar::Kind::kJsonSchema, std::string(fields.text("json_schema")),
         out);
  }
  std::string rules;
  fields.read("grammar", &rules);
  if (!rules.empty()) bind(fields, "grammar", grammar::Kind::kGbnf, std::move(rules), out);
}

}  // namespace sluice::openai

// The fields that only chat requests have: messages, tools and the format of the response. The
// other APIs read them, too, in their own forms.
#pragma once

#include "openai/fields.h"
#include "openai/request.h"

namespace sluice::openai {

void read_messages(Fields& fields, GenerateRequest* out);

// How an API writes a function: {"type": "function", "function": {"name", "parameters"}}.
struct ToolForm {
  const char* type = "function";
  const char* schema = "parameters";
  bool flat = false;  // without the inner object
  bool type_is_optional = false;
  bool own_choice = false;  // tool_choice has another form, and is read before
};
// tools and tool_choice.
void read_tools(Fields& fields, const ToolForm& form, GenerateRequest* out);

// The variables of the template: chat_template_kwargs.
void read_variables(Fields& fields, GenerateRequest* out);
// Sets a variable to a JSON value, unless the client has set it.
void set_variable(std::string_view name, std::string_view value, GenerateRequest* out);
// How long to reason: a variable of the template.
void read_effort(Fields& fields, const char* key, GenerateRequest* out);
// The variables of the template and what the prompt ends with.
void read_template_fields(Fields& fields, GenerateRequest* out);

// The format of the response. `flat`: {"type", "schema"}, without `json_schema`.
void read_response_format(Fields& fields, const char* key, bool flat, generate::Options* out);
// response_format, and llama-server's `json_schema` and `grammar`.
void read_constraint(Fields& fields, generate::Options* out);

}  // namespace sluice::openai

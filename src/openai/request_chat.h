// The fields that only chat requests have: messages, tools and the format of the response.
#pragma once

#include "openai/fields.h"
#include "openai/request.h"

namespace sluice::openai {

void read_messages(Fields& fields, GenerateRequest* out);
void read_tools(Fields& fields, GenerateRequest* out);
// The variables of the template and what the prompt ends with.
void read_template_fields(Fields& fields, GenerateRequest* out);
// response_format, and llama-server's `json_schema` and `grammar`.
void read_constraint(Fields& fields, generate::Options* out);

}  // namespace sluice::openai

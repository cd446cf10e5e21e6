// The fields that mean the same in requests of several APIs.
#pragma once

#include "openai/fields.h"
#include "openai/request.h"

namespace sluice::openai {

// Parameters of OpenAI's API that cannot change the output of a local model.
void ignore_foreign(Fields& fields);
// Those, and what decides how tokens are chosen.
void read_sampling(Fields& fields, GenerateRequest* out);
// Stop strings: a text or a list.
void read_stop(Fields& fields, const char* key, GenerateRequest* out);

}  // namespace sluice::openai

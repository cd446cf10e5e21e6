// The body of a request: its text, its parsed members, and their check.
#pragma once

#include <string>
#include <string_view>

#include "openai/fields.h"

namespace sluice::openai {

struct Document {
  explicit Document(std::string_view body);
  std::string text;  // with half surrogate pairs replaced, without byte order mark
  Json json;
  Problem problem;
};

// Not ok() if the body is not a JSON object.
class Body : Document, public Fields {
 public:
  explicit Body(std::string_view body) : Document(body), Fields(json, Document::text, problem) {}
  using Fields::text;
};

}  // namespace sluice::openai

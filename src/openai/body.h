// The body of a request: its text, its parsed members, and their check.
#pragma once

#include <span>
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

  // The text of an object with the members of the body except those, and `further` ones. Other APIs
  // are checked as this one, under its names.
  [[nodiscard]] std::string without(std::span<const std::string_view> keys,
                                    std::string_view further) const;
};

}  // namespace sluice::openai

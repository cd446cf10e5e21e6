// Schemas of tools whose parameters are written one by one: what is text, what is JSON, and what
// cannot be enforced.
#include <gtest/gtest.h>

#include "chat/tool_schema.h"

namespace sluice::chat {
namespace {

// The only parameter of an object with these further members.
Result<std::vector<Parameter>> only(const std::string& schema, const std::string& more = "") {
  return parameters_of(R"({"type": "object", "properties": {"a": )" + schema +
                           R"(}, "required": ["a"])" + more + "}",
                       /*strict=*/true);
}

TEST(ChatToolSchema, SplitsAParameterIntoTextAndJson) {
  const struct {
    std::string schema, more;
    bool any_text;
    std::vector<std::string> texts;
    size_t values;
  } cases[] = {
      {R"({"type": "string"})", "", true, {}, 0},
      {R"({"type": ["string", "null"]})", "", true, {}, 1},
      {R"({"enum": ["x", 5, null]})", "", false, {"x"}, 1},
      {R"({"type": "integer", "minimum": 3, "description": "x"})", "", false, {}, 1},
      {R"({"anyOf": [{"type": "string"}, {"type": "boolean"}]})", "", true, {}, 1},
      {R"({"$ref": "#/$defs/e"})", R"(, "$defs": {"e": {"enum": ["x"]}})", false, {"x"}, 0},
  };
  for (const auto& one : cases) {
    const auto found = only(one.schema, one.more);
    ASSERT_TRUE(found.ok()) << one.schema << ": " << found.status().message();
    ASSERT_EQ(found->size(), 1u) << one.schema;
    const Parameter& parameter = found->front();
    EXPECT_TRUE(parameter.name == "a" && parameter.required) << one.schema;
    EXPECT_EQ(parameter.any_text, one.any_text) << one.schema;
    EXPECT_EQ(parameter.texts, one.texts) << one.schema;
    EXPECT_EQ(parameter.values.size(), one.values) << one.schema;
  }
}

TEST(ChatToolSchema, RefusesWhatCannotBeEnforced) {
  const std::string defs = R"(, "$defs": {"e": {"enum": ["x"]}})";
  const std::pair<std::string, std::string> cases[] = {
      {R"({"$ref": "#/$defs/e", "minimum": 1})", defs},
      {R"({"$ref": "#"})", ""},
      {R"({"type": "string", "format": "date"})", ""},
      {R"({"type": "string", "pattern": "a"})", ""},
      {R"({"type": "string"})", R"(, "minProperties": 1)"},
      {R"({"minimum": 3})", ""},
      {"false", ""},
  };
  for (const auto& [schema, more] : cases) {
    EXPECT_EQ(only(schema, more).status().code(), Code::kSchemaUnsupported) << schema << more;
  }
  const auto missing = parameters_of(
      R"({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["b"]})",
      /*strict=*/true);
  EXPECT_EQ(missing.status().code(), Code::kSchemaUnsupported);
}

}  // namespace
}  // namespace sluice::chat

// Each JSON Schema keyword is enforced, or is an error with its JSON pointer; keywords that once
// were enforced only in part; and the automata of schemas and patterns, which are small and take
// bounded work.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "grammar/dfa.h"
#include "grammar/grammar.h"
#include "grammar/regex.h"

namespace sluice::grammar {
namespace {

Verdict verdict(std::string_view schema, std::string_view text) {
  const auto compiled = compile(Kind::kJsonSchema, schema, nullptr);
  EXPECT_TRUE(compiled.ok()) << compiled.status().message() << " in " << schema;
  if (!compiled.ok()) return Verdict::kReject;
  const Result<Verdict> found = check(**compiled, text);
  EXPECT_TRUE(found.ok()) << found.status().message();
  return found.ok() ? *found : Verdict::kReject;
}

void expect_refused(std::string_view schema, std::string_view pointer) {
  const Status status = compile(Kind::kJsonSchema, schema, nullptr).status();
  EXPECT_EQ(status.code(), Code::kSchemaUnsupported) << schema;
  const std::string at = "at \"" + std::string(pointer) + "\": ";
  EXPECT_EQ(status.message().substr(0, at.size()), at) << schema << ": " << status.message();
}

TEST(SchemaKeywords, AreEnforced) {
  struct Case {
    const char* schema;
    const char* good;
    const char* bad;
  };
  const Case cases[] = {
      {R"({"type": "string"})", R"("a")", "1"},
      {R"({"type": ["null", "integer"]})", "-7", "1.5"},
      {R"({"enum": [1, "a", [2], {"b": null}]})", R"({"b":null})", R"({"b":1})"},
      {R"({"const": {"a": [1, true]}})", R"({"a":[1,true]})", R"({"a":[1,false]})"},
      {R"({"type": "object", "properties": {"a": {"type": "null"}, "b": {}}, "required": ["b"],
           "additionalProperties": false})",
       R"({"b":1})", R"({"a":null})"},
      {R"({"properties": {"a": true}, "additionalProperties": {"type": "null"}})",
       R"({"a":1,"b":null})", R"({"b":1})"},
      {R"({"patternProperties": {"^x": {"type": "integer"}}})", R"({"x1":1,"y":"a"})",
       R"({"x1":"a"})"},
      {R"({"type": "object", "propertyNames": {"maxLength": 2}})", R"({"ab":1})", R"({"abc":1})"},
      {R"({"type": "object", "minProperties": 1, "maxProperties": 1})", R"({"a":1})", "{}"},
      {R"({"properties": {"a": {}, "b": {}}, "dependentRequired": {"a": ["b"]}})", R"({"b":1})",
       R"({"a":1})"},
      {R"({"properties": {"a": {}, "b": {}}, "dependentSchemas": {"a": {"required": ["b"]}}})",
       R"({"a":1,"b":2})", R"({"a":1})"},
      {R"({"properties": {"a": {}, "b": {}}, "dependencies": {"a": ["b"]}})", R"({"a":1,"b":2})",
       R"({"a":1})"},
      {R"({"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": false})", R"({"a":1})",
       R"({"b":1})"},
      {R"({"anyOf": [{"type": "null"}, {"minimum": 3, "type": "number"}]})", "4", "2"},
      {R"({"oneOf": [{"multipleOf": 2}, {"multipleOf": 3}], "type": "integer"})", "4", "6"},
      {R"({"allOf": [{"minimum": 2}, {"maximum": 3}], "type": "integer"})", "3", "4"},
      {R"({"not": {"type": ["string", "array", "object", "boolean"]}})", "null", R"("a")"},
      {R"({"if": {"properties": {"a": {"const": 1}}, "required": ["a"]},
           "then": {"required": ["b"]}, "else": {"required": ["c"]}, "type": "object"})",
       R"({"a":1,"b":2})", R"({"a":1})"},
      {R"({"$defs": {"n": {"properties": {"n": {"$ref": "#/$defs/n"}}, "type": "object",
           "additionalProperties": false}}, "$ref": "#/$defs/n"})",
       R"({"n":{"n":{}}})", R"({"n":{"n":1}})"},
      {R"({"definitions": {"x": {"type": "null"}}, "$ref": "#/definitions/x"})", "null", "1"},
      {R"({"$defs": {"x": {"$anchor": "here", "type": "null"}}, "$ref": "#here"})", "null", "1"},
      {R"({"type": "array", "items": {"type": "null"}})", "[null,null]", "[null,1]"},
      {R"({"type": "array", "prefixItems": [{"type": "null"}], "items": false})", "[null]",
       "[null,null]"},
      {R"({"type": "array", "items": [{"type": "null"}], "additionalItems": {"const": 1}})",
       "[null,1]", "[null,2]"},
      {R"({"type": "array", "minItems": 1, "maxItems": 2})", "[1]", "[1,2,3]"},
      {R"({"type": "array", "contains": {"const": 1}, "minContains": 2, "maxContains": 2})",
       "[1,0,1]", "[1,1,1]"},
      {R"({"type": "array", "prefixItems": [true], "unevaluatedItems": false})", "[1]", "[1,2]"},
      {R"({"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": true})", "[2,1]", "[2,2]"},
      {R"({"type": "string", "minLength": 1, "maxLength": 2})", "\"\U0001F600\xC3\xA9\"",
       R"("abc")"},
      {R"({"type": "string", "pattern": "^a+$"})", R"("aa")", R"("ab")"},
      {R"({"type": "string", "format": "date"})", R"("2024-02-29")", R"("2023-02-29")"},
      {R"({"type": "number", "minimum": -1.5, "maximum": 2})", "-1.5", "2.01"},
      {R"({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1})", "0.5", "1"},
      {R"({"type": "number", "multipleOf": 0.25})", "1.75", "1.8"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(verdict(c.schema, c.good), Verdict::kMatch) << c.schema << c.good;
    EXPECT_NE(verdict(c.schema, c.bad), Verdict::kMatch) << c.schema << c.bad;
  }
}

TEST(SchemaKeywords, FormatsAreEnforcedOrErrors) {
  struct Case {
    const char *name, *good, *bad;
  };
  const Case cases[] = {
      {"date", "2000-02-29", "1900-02-29"},
      {"time", "23:59:59Z", "24:00:00Z"},
      {"date-time", "2024-01-31T01:02:03.5+01:00", "2024-01-32T01:02:03Z"},
      {"duration", "P1Y2M3DT4H5M6S", "P1Y3D"},
      {"uuid", "123e4567-e89b-12d3-a456-426614174000", "123e4567-e89b-12d3-a456-42661417400"},
      {"ipv4", "255.0.0.1", "256.0.0.1"},
      {"ipv6", "::1", ":::"},
      {"email", "a.b@example.org", "a..b@example.org"},
      {"uri", "https://example.org/a?b#c", "//example.org"},
  };
  for (const Case& c : cases) {
    const std::string schema = R"({"type": "string", "format": ")" + std::string(c.name) + "\"}";
    EXPECT_EQ(verdict(schema, "\"" + std::string(c.good) + "\""), Verdict::kMatch) << c.name;
    EXPECT_NE(verdict(schema, "\"" + std::string(c.bad) + "\""), Verdict::kMatch) << c.name;
  }
  for (const char* name : {"idn-email", "idn-hostname", "iri", "iri-reference", "uri-reference",
                           "uri-template", "json-pointer", "relative-json-pointer", "regex"}) {
    expect_refused(R"({"type": "string", "format": ")" + std::string(name) + "\"}", "/format");
  }
}

TEST(SchemaKeywords, AreErrorsWithTheirPointer) {
  struct Case {
    const char *schema, *pointer;
  };
  const Case cases[] = {
      {R"({"items": {"type": "number"}, "uniqueItems": true})", "/uniqueItems"},
      {R"({"items": {"type": "object"}, "uniqueItems": true})", "/uniqueItems"},
      {R"({"items": {"type": "string", "pattern": "a"}, "uniqueItems": true})", "/uniqueItems"},
      {R"({"items": {"enum": [1, 2, 3, 4, 5, 6, 7, 8, 9]}, "uniqueItems": true})", "/uniqueItems"},
      {R"({"prefixItems": [{"const": 1}], "uniqueItems": true})", "/uniqueItems"},
      {R"({"items": {"type": "string"}, "minItems": 9, "uniqueItems": true})", "/uniqueItems"},
      {R"({"uniqueItems": true})", "/uniqueItems"},
      {R"({"$ref": "other.json"})", "/$ref"},
      {R"({"$ref": "#/$defs/none"})", "/$ref"},
      {R"({"$recursiveRef": "#"})", "/$recursiveRef"},
      {R"x({"type": "string", "pattern": "(?=a)"})x", "/pattern"},
      {R"({"type": "string", "pattern": "\\bx"})", "/pattern"},
      {R"({"type": "string", "pattern": "$^"})", "/pattern"},
      {R"({"not": {"type": "string", "pattern": "(^a?$){2}"}})", "/not/pattern"},
      {R"({"type": "number", "multipleOf": 0.00012345})", "/multipleOf"},
      {R"({"multipleOf": 0})", "/multipleOf"},
      {R"({"minLength": -1})", "/minLength"},
      {R"({"exclusiveMinimum": true})", "/exclusiveMinimum"},
      {R"({"type": "object", "minProperties": 3})", "/minProperties"},
      {R"({"not": {"uniqueItems": true}})", "/not/uniqueItems"},
      {R"({"not": {"additionalProperties": {"type": "null"}}})", "/not/additionalProperties"},
      {R"({"not": {"items": [{"const": 1}], "additionalItems": false}})", "/not/items"},
      {R"({"format": "hostname"})", "/format"},  // too many states
      {R"({"type": "text"})", "/type"},
      {R"({"properties": {"a": 5}})", "/properties/a"},
  };
  for (const Case& c : cases) expect_refused(c.schema, c.pointer);
}

// These schemas mean a list, but the keywords allow other types. That matters if branches exclude
// each other and if items are counted.
TEST(SchemaKeywords, ItemsAndMinItemsAllowOtherTypes) {
  const char* const one = R"({"oneOf": [{"items": {"type": "string"}, "minItems": 1},
                                        {"type": "number"}]})";
  EXPECT_EQ(verdict(one, "5"), Verdict::kReject);
  EXPECT_EQ(verdict(one, R"(["a"])"), Verdict::kMatch);
  const char* const counted = R"({"enum": [[1, 2], [1, ["a"]], [["a"]], [[1]]],
      "contains": {"items": {"type": "string"}, "minItems": 1}, "maxContains": 1})";
  EXPECT_EQ(verdict(counted, "[1,2]"), Verdict::kReject);
  EXPECT_EQ(verdict(counted, R"([["a"]])"), Verdict::kMatch);
  const char* const plain = R"({"items": {"type": "string"}, "minItems": 1})";
  EXPECT_EQ(verdict(plain, R"(["a"])"), Verdict::kMatch);
  EXPECT_EQ(verdict(plain, "5"), Verdict::kReject);
}

// Whether a branch of oneOf excludes the others depends on its negation.
TEST(SchemaKeywords, IndistinguishableBranchesAreErrors) {
  const std::string schema = R"({"oneOf": [{"required": ["a", "b"]}, {"required": ["a", "b"],
      "unevaluatedProperties": false, "anyOf": [{"properties": {"a": {}}},
      {"properties": {"b": {}}}, {"properties": {"c": {}}}, {"properties": {"d": {}}},
      {"properties": {"e": {}}}, {"properties": {"f": {}}}]}]})";
  expect_refused(schema, "/oneOf/1/unevaluatedProperties");
}

TEST(SchemaKeywords, ANegationEvaluatesNothing) {
  const char* const items = R"({"not": {"items": {"type": "string"}}, "unevaluatedItems": false})";
  EXPECT_EQ(verdict(items, "[1]"), Verdict::kReject);
  const char* const contains = R"({"type": "array", "contains": {"const": 1},
      "not": {"items": {"type": "integer"}}, "unevaluatedItems": false})";
  EXPECT_NE(verdict(contains, R"([1,"a"])"), Verdict::kMatch);
}

TEST(SchemaKeywords, EachDraftHasItsOwnKeywords) {
  const std::string draft7 = R"({"$schema": "http://json-schema.org/draft-07/schema#", )";
  const std::string none =
      draft7 + R"("type": "array", "contains": {"const": 1}, "minContains": 0})";
  EXPECT_EQ(verdict(none, "[2,1]"), Verdict::kMatch);
  EXPECT_EQ(verdict(none, "[2]"), Verdict::kReject);
  const std::string tuple = draft7 + R"("type": "array", "items": {"type": "null"},
      "prefixItems": [{"type": "string"}]})";
  EXPECT_EQ(verdict(tuple, "[null]"), Verdict::kMatch);
  EXPECT_EQ(verdict(tuple, R"(["a"])"), Verdict::kReject);
}

TEST(GrammarAutomata, AreMinimal) {
  struct Case {
    const char* pattern;
    uint32_t states;
  };
  const Case cases[] = {
      {"(?:a|b)*abb", 4},
      {"a{3}|b{3}", 6},
      {"aa|ab|ba|bb", 3},
      {"a*", 1},
      {"(?:ab|cb)*(?:ad|cd)", 3},
      {"(?:a|b){0,40}c", 42},
      {"", 1},
  };
  for (const Case& c : cases) {
    const Result<Dfa> made = regex_automaton(c.pattern, false);
    ASSERT_TRUE(made.ok()) << made.status().message();
    EXPECT_EQ(made->size(), c.states) << c.pattern;
  }
}

// What would take minutes, or any amount of memory, ends soon with a result or an error.
TEST(GrammarAutomata, HostileOnesAreBounded) {
  std::string many = "{\"type\": \"object\", \"properties\": {";
  for (int i = 0; i < 4100; ++i) many += (i ? ",\"p" : "\"p") + std::to_string(i) + "\": true";
  const std::string patterns[] = {"^[a-z]{2900}$",   "^(?:[ab]*a[ab]{12})$",
                                  "^(?:.*a.{11}b)$", "^(?:(?:a|aa|aaa){60}b){40}$",
                                  "(?:x*y?){900}$",  "^.{1,1400}$"};
  for (const std::string& pattern : patterns) {
    const auto made = compile(Kind::kRegex, pattern, nullptr);
    if (!made.ok()) {
      EXPECT_EQ(made.status().code(), Code::kGrammarTooLarge) << pattern;
    }
  }
  EXPECT_EQ(compile(Kind::kJsonSchema, many + "}}", nullptr).status().code(), Code::kGrammarSyntax);
}

}  // namespace
}  // namespace sluice::grammar

// Grammars without a model: dialects, errors, masks compared with a test of every token, and
// external test suites beside the checkout.
#include "grammar/grammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "../extent.h"
#include "../paths.h"
#include "grammar/json.h"
#include "grammar/matcher.h"

namespace sluice::grammar {
namespace {

using Json = nlohmann::ordered_json;

Result<std::shared_ptr<const Grammar>> gbnf(std::string_view text) {
  return compile(Kind::kGbnf, text, nullptr);
}

Verdict verdict(Kind kind, std::string_view grammar, std::string_view text, bool compact = true) {
  const auto compiled = compile(kind, grammar, nullptr, {.compact = compact});
  EXPECT_TRUE(compiled.ok()) << compiled.status().message() << " in " << grammar;
  if (!compiled.ok()) return Verdict::kReject;
  const Result<Verdict> found = check(**compiled, text);
  EXPECT_TRUE(found.ok()) << found.status().message();
  return found.ok() ? *found : Verdict::kReject;
}

Code code(Kind kind, std::string_view grammar) {
  return compile(kind, grammar, nullptr).status().code();
}

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

const std::filesystem::path kFixtures = sluice::test::shared_dir() + "/fixtures";

TEST(Gbnf, AcceptsTheDialect) {
  struct Case {
    const char* grammar;
    const char* text;
    Verdict want;
  };
  const Case cases[] = {
      {"root ::= \"a\" | \"bc\"", "b", Verdict::kPrefix},
      {"root ::= (\"a\"\n | \"b\")+ # end", "abba", Verdict::kMatch},
      {"root ::= [^a-c\\]]{2}", "]x", Verdict::kReject},
      {"root ::= [a-]+", "a-a", Verdict::kMatch},
      {"root ::= \"\\x41\\u00e9\\U0001F600\"", "A\u00e9\U0001F600", Verdict::kMatch},
      {"root ::= .", "\xF0\x9F", Verdict::kPrefix},
      {"root ::= .", "\xC0", Verdict::kReject},
      {"root ::= \"a\"{2,}", "aaa", Verdict::kMatch},
      {"root ::= \"ab\"{1,2} \"c\"", "ababab", Verdict::kReject},
      {"root ::= x\nx ::= \"(\" x? \")\"", "((()))", Verdict::kMatch},
      {"root ::= x\nx ::= \"(\" x? \")\"", "((())", Verdict::kPrefix},
      {"root ::= a* a* a*\na ::= [x]*", "xxxxxxxxxxxxxxxx", Verdict::kMatch},
      {"root ::= e\ne ::= t | t \"+\" e\nt ::= \"x\" | \"(\" e \")\"", "x+(x+x)", Verdict::kMatch},
      {"root ::= \"a\" never\nnever ::= \"b\" never", "a", Verdict::kReject},
  };
  for (const Case& c : cases)
    EXPECT_EQ(verdict(Kind::kGbnf, c.grammar, c.text), c.want) << c.grammar << " on " << c.text;
}

TEST(Gbnf, ErrorsHaveLineAndColumn) {
  const auto message = [](std::string_view text) { return gbnf(text).status().message(); };
  EXPECT_EQ(message("root ::= \"a"), "line 1, column 10: this literal is not closed");
  EXPECT_EQ(message("root ::= x\n"), "line 1, column 10: the rule \"x\" is not defined");
  EXPECT_EQ(message("root ::= \"a\"\nb ::= [z-a]"), "line 2, column 8: this range is reversed");
  EXPECT_EQ(code(Kind::kGbnf, "a ::= \"x\""), Code::kGrammarSyntax);
  EXPECT_EQ(code(Kind::kGbnf, "root ::= root \"x\" | \"y\""), Code::kGrammarLeftRecursion);
  EXPECT_EQ(code(Kind::kGbnf, "root ::= n root \"x\" | \"y\"\nn ::= \"z\"?"),
            Code::kGrammarLeftRecursion);
  EXPECT_EQ(code(Kind::kGbnf, "root ::= \"x\"{1000000}"), Code::kGrammarTooLarge);
  // Nested repetitions become rules that call each other: the states grow with the number of
  // digits.
  EXPECT_EQ(code(Kind::kGbnf, "root ::= (((\"x\"{999}){999}){999}){999}"), Code::kOk);
  EXPECT_EQ(code(Kind::kGbnf, "root ::= " + std::string(5000, '(')), Code::kGrammarSyntax);
}

TEST(Gbnf, EmbedsSchemasAndFreeText) {
  const char* const call =
      "root ::= %until [\"<call>\", \"[c]\"] (\"<call>\" value \"</call>\")?\n"
      "value ::= %json {\"properties\": {\"n\": {\"$ref\": \"#/$defs/n\"}}, \"required\": "
      "[\"n\"],\n"
      "  \"type\": \"object\", \"additionalProperties\": false, \"$defs\": {\"n\": {\"enum\": [1, "
      "2]}}}";
  struct Case {
    const char* text;
    Verdict want;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"", Verdict::kMatch},
           {"free <cal", Verdict::kMatch},
           {"free <<call>{\"n\":1}</call>", Verdict::kMatch},
           {"free <call>{\"n\":1}", Verdict::kPrefix},
           {"free <call>{\"n\":3}", Verdict::kReject},
           {"free <call>{\"n\": 1}", Verdict::kReject},
           {"free <call>x", Verdict::kReject},
           {"free [c]", Verdict::kReject},
       }) {
    EXPECT_EQ(verdict(Kind::kGbnf, call, c.text), c.want) << c.text;
  }
  const char* const spaced = "root ::= \"a\" %spaced {\"const\": [1]} \"b\"";
  EXPECT_EQ(verdict(Kind::kGbnf, spaced, "a[ 1 ]b"), Verdict::kMatch);
  EXPECT_EQ(verdict(Kind::kGbnf, spaced, "a[ 2 ]b"), Verdict::kReject);
  EXPECT_EQ(verdict(Kind::kGbnf, spaced, "a[1]b"), Verdict::kMatch);
  EXPECT_EQ(verdict(Kind::kGbnf, spaced, "a[  1]b"), Verdict::kReject);
  EXPECT_EQ(code(Kind::kGbnf, "root ::= %jason {}"), Code::kGrammarSyntax);
  EXPECT_EQ(code(Kind::kGbnf, "root ::= %json {"), Code::kGrammarSyntax);
  EXPECT_EQ(code(Kind::kGbnf, "root ::= %json {} x"), Code::kGrammarSyntax);
  EXPECT_EQ(code(Kind::kGbnf, "root ::= %until []"), Code::kGrammarSyntax);
  EXPECT_EQ(code(Kind::kGbnf, "root ::= %until [1]"), Code::kGrammarSyntax);
  EXPECT_EQ(code(Kind::kGbnf, "root ::= %json {\"$ref\": \"#/x\"}"), Code::kSchemaUnsupported);
}

// A large repeated part becomes a rule of its own; rule names after it must still resolve.
TEST(Gbnf, RulesAfterARepetitionResolve) {
  std::string text = "root ::= (";
  for (int i = 0; i < 40; ++i) text += "\"abcdefgh\" ";
  text += "){0,30} b\nb ::= c\nc ::= \"x\"";
  EXPECT_EQ(verdict(Kind::kGbnf, text, "x"), Verdict::kMatch);
}

TEST(Gbnf, EveryTruncatedLengthTerminates) {
  const std::string text =
      "root ::= a+ | \"x\\u00e9\"{2,3} [^\\x00-\\x1f] # c\na ::= (\"b\" | <[10]> !<t> .)? \"d\"*\n";
  for (size_t n = 0; n <= text.size(); ++n) {
    const auto compiled = gbnf(text.substr(0, n));
    if (compiled.ok()) {
      EXPECT_TRUE(check(**compiled, "xx").ok());
    } else {
      EXPECT_FALSE(compiled.status().message().empty());
    }
  }
}

TEST(RegexGrammar, MatchesWholeStrings) {
  EXPECT_EQ(verdict(Kind::kRegex, "[ab]+c?", "abac"), Verdict::kMatch);
  EXPECT_EQ(verdict(Kind::kRegex, "^a|b$", "b"), Verdict::kMatch);
  EXPECT_EQ(verdict(Kind::kRegex, "a^b", "ab"), Verdict::kReject);
  EXPECT_EQ(verdict(Kind::kRegex, "(?:\\d{3}-){2}\\w", "123-456-x"), Verdict::kMatch);
  EXPECT_EQ(verdict(Kind::kRegex, "\\u{1F600}|\\uD83D\\uDE01", "\U0001F601"), Verdict::kMatch);
  for (const char* bad :
       {"(?=a)", "(?<!a)", "\\1", "\\b", "\\p{L}", "(a", "a)", "[b-a]", "*", "a**"}) {
    EXPECT_EQ(code(Kind::kRegex, bad), Code::kGrammarSyntax) << bad;
  }
}

TEST(ChoiceGrammar, MatchesExactlyTheChoices) {
  const char* const list = R"(["yes", "yesterday", "no"])";
  EXPECT_EQ(verdict(Kind::kChoice, list, "yes"), Verdict::kMatch);
  EXPECT_EQ(verdict(Kind::kChoice, list, "yeste"), Verdict::kPrefix);
  EXPECT_EQ(verdict(Kind::kChoice, list, "nope"), Verdict::kReject);
  EXPECT_EQ(code(Kind::kChoice, "[]"), Code::kGrammarSyntax);
}

TEST(SchemaGrammar, ErrorsNameKeywordAndPointer) {
  const auto found =
      compile(Kind::kJsonSchema, R"({"properties": {"a/b": {"format": "regex"}}})", nullptr);
  EXPECT_EQ(found.status().code(), Code::kSchemaUnsupported);
  EXPECT_EQ(found.status().message(),
            "at \"/properties/a~1b/format\": this format is not supported");
  EXPECT_EQ(code(Kind::kJsonSchema, "{"), Code::kGrammarSyntax);
  EXPECT_EQ(code(Kind::kJsonSchema, R"({"$ref": "https://example.org/x"})"),
            Code::kSchemaUnsupported);
}

TEST(SchemaGrammar, UniqueItemsNeverRepeat) {
  const char* const schema =
      R"({"type": "array", "items": {"type": "string"}, "uniqueItems": true})";
  EXPECT_EQ(verdict(Kind::kJsonSchema, schema, R"(["home","green"])"), Verdict::kMatch);
  EXPECT_EQ(verdict(Kind::kJsonSchema, schema, R"(["home","home"])"), Verdict::kReject);
  EXPECT_EQ(verdict(Kind::kJsonSchema, schema, R"(["home","\u0068ome"])"), Verdict::kReject);
}

// Any prefix of a valid document can be completed.
TEST(SchemaGrammar, EveryPrefixCanBecomeAMatch) {
  const char* const schema = R"({"type": "object", "properties": {
      "name": {"type": "string", "maxLength": 8}, "n": {"type": "number", "minimum": -1.5},
      "d": {"format": "date", "type": "string"}}, "required": ["name"]})";
  const std::string text = R"({"name":"J\u00fcrgen","n":-1.25,"d":"2024-02-29","x":[{}]})";
  for (size_t n = 0; n < text.size(); ++n) {
    EXPECT_EQ(verdict(Kind::kJsonSchema, schema, text.substr(0, n)), Verdict::kPrefix) << n;
  }
  EXPECT_EQ(verdict(Kind::kJsonSchema, schema, text), Verdict::kMatch);
}

// --- masks

class MadeTokens final : public TokenSource {
 public:
  MadeTokens() {
    for (int byte = 0; byte < 256; ++byte)
      texts_.push_back(std::string(1, static_cast<char>(byte)));
    const char* const parts[] = {"\"",       "{\"",      "\":",  "name", "a",  "é",
                                 "\xF0\x9F", "\x98\x80", "1",    "}",    "],", " the",
                                 "\\n",      "\",\"",    "true", "-0.",  "Qx"};
    std::mt19937 random(7);
    while (texts_.size() < 3000) {
      std::string text;
      for (size_t n = random() % 4 + 1; n > 0; --n) text += parts[random() % std::size(parts)];
      texts_.push_back(text);
    }
    texts_.push_back("");  // a control token
    texts_.push_back("");  // the end
  }
  [[nodiscard]] int32_t n_tokens() const override { return static_cast<int32_t>(texts_.size()); }
  [[nodiscard]] std::string bytes(Token t) const override { return texts_[static_cast<size_t>(t)]; }
  [[nodiscard]] std::string_view name(Token t) const override {
    if (t == n_tokens() - 1) return "<end>";
    if (t == n_tokens() - 2) return "<think>";
    return texts_[static_cast<size_t>(t)];
  }
  [[nodiscard]] bool ends(Token t) const override { return t == n_tokens() - 1; }

 private:
  std::vector<std::string> texts_;
};

bool allowed(std::span<const uint64_t> mask, Token t) {
  return (mask[static_cast<size_t>(t) / 64] >> (t % 64) & 1) != 0;
}

// Random walks: at each step the mask equals accepts() for every token, forced text is a prefix of
// every continuation, and rewinding restores the mask.
void walk(Kind kind, std::string_view text, uint32_t seed) {
  static const MadeTokens tokens;
  const auto vocabulary = Vocabulary::create(tokens);
  ASSERT_TRUE(vocabulary.ok());
  const auto compiled = compile(kind, text, vocabulary->get());
  ASSERT_TRUE(compiled.ok()) << compiled.status().message();
  auto matcher = Matcher::create(*compiled, **vocabulary);
  ASSERT_TRUE(matcher.ok()) << matcher.status().message();
  std::mt19937 random(seed);
  for (int step = 0; step < 40; ++step) {
    const auto bits = (*matcher)->mask();
    const std::vector<uint64_t> mask(bits.begin(), bits.end());
    std::vector<Token> ways;
    for (Token t = 0; t < tokens.n_tokens(); ++t) {
      ASSERT_EQ(allowed(mask, t), (*matcher)->accepts(t)) << "token " << t << " at step " << step;
      if (allowed(mask, t) && !tokens.ends(t)) ways.push_back(t);
    }
    ASSERT_TRUE(!ways.empty() || (*matcher)->can_end());
    ASSERT_EQ(ways.empty(), (*matcher)->must_end());
    if (ways.empty()) break;
    const std::string forced = (*matcher)->forced(64);
    for (const Token t : ways) {
      const std::string way = tokens.bytes(t);
      const size_t n = std::min(way.size(), forced.size());
      ASSERT_EQ(way.substr(0, n), forced.substr(0, n));
    }
    const Token chosen = ways[random() % ways.size()];
    ASSERT_TRUE((*matcher)->advance(chosen));
    (*matcher)->rewind(1);
    const auto again = (*matcher)->mask();
    ASSERT_TRUE(std::equal(again.begin(), again.end(), mask.begin()));
    ASSERT_TRUE((*matcher)->advance(chosen));
  }
}

TEST(GrammarMask, EqualsATestOfEveryToken) {
  for (uint32_t seed = 0; seed < static_cast<uint32_t>(test::extent(2, 4)); ++seed) {
    walk(Kind::kJson, "", seed);
    walk(Kind::kJsonSchema, R"({"type": "object", "properties": {"name": {"type": "string",
         "maxLength": 12}, "tags": {"type": "array", "items": {"enum": ["a", "b", 1]}}},
         "required": ["name"], "additionalProperties": false})",
         seed);
    walk(Kind::kGbnf, "root ::= <think> (!<end>)* \"name\" [^\\n]*", seed);
    walk(Kind::kRegex, "(name|a)+[^a-z\"]{3,9}.*", seed);
    walk(Kind::kRegex, "[a-z]{0,6}[A-Za-z0-9]{1,12}( [a-z]*)?", seed);
    walk(Kind::kRegex, "[a-z]+[A-Z][A-Za-z0-9]*|.{2}", seed);
    walk(Kind::kJsonSchema, R"({"type": "string", "format": "email"})", seed);
  }
}

// --- external test suites beside the checkout

TEST(GrammarFixtures, CasesAreCorrect) {
  const std::filesystem::path path = kFixtures / "grammar/cases.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no ../shared/fixtures/grammar";
  const Json cases = Json::parse(read(path));
  size_t texts = 0;
  for (const Json& c : cases) {
    const bool schema = c["kind"] == "json-schema";
    const auto compiled = compile(schema ? Kind::kJsonSchema : Kind::kGbnf,
                                  c["text"].get<std::string>(), nullptr, {.compact = false});
    ASSERT_TRUE(compiled.ok()) << c["name"] << ": " << compiled.status().message();
    for (const char* want : {"match", "reject"}) {
      for (const Json& text : c[want]) {
        const Result<Verdict> found = check(**compiled, text.get<std::string>());
        ASSERT_TRUE(found.ok());
        EXPECT_EQ(*found == Verdict::kMatch, std::string_view(want) == "match")
            << c["name"] << " on " << text;
        ++texts;
      }
    }
  }
  EXPECT_GE(texts, 280u);
}

// Integral floats as JavaScript writes them.
Json compact_form(Json value) {
  if (value.is_number_float() && value.get<double>() == std::floor(value.get<double>()) &&
      std::abs(value.get<double>()) < 1e15) {
    return static_cast<int64_t>(value.get<double>());
  }
  if (value.is_structured()) {
    for (auto& item : value) item = compact_form(item);
  }
  return value;
}

struct Tally {
  int groups = 0, taken = 0, valid = 0, accepted = 0, wrong = 0;
};

void run_suite(const std::filesystem::path& folder, bool draft7,
               std::map<std::string, Tally>* by_file) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    Tally& tally = (*by_file)[entry.path().stem().string()];
    for (const Json& group : Json::parse(read(entry.path()))) {
      ++tally.groups;
      Json schema = group["schema"];
      if (draft7 && schema.is_object())
        schema["$schema"] = "http://json-schema.org/draft-07/schema#";
      const auto compiled = compile(Kind::kJsonSchema, schema.dump(), nullptr);
      if (!compiled.ok()) continue;
      ++tally.taken;
      for (const Json& test : group["tests"]) {
        const std::string text = compact_form(test["data"]).dump();
        const Result<Verdict> found = check(**compiled, text);
        ASSERT_TRUE(found.ok());
        const bool match = *found == Verdict::kMatch;
        if (test["valid"].get<bool>()) {
          ++tally.valid;
          tally.accepted += match ? 1 : 0;
        } else if (match) {
          ++tally.wrong;
          ADD_FAILURE() << entry.path().stem() << ": " << group["description"] << ": "
                        << test["description"] << ": " << text;
        }
      }
    }
  }
}

void report(const char* title, const std::map<std::string, Tally>& by_file) {
  Tally all;
  std::printf("%s\n%-26s %8s %8s %8s\n", title, "keyword", "schemas", "taken", "accepted");
  for (const auto& [name, t] : by_file) {
    std::printf("%-26s %8d %8d %4d/%d\n", name.c_str(), t.groups, t.taken, t.accepted, t.valid);
    all.groups += t.groups, all.taken += t.taken, all.valid += t.valid;
    all.accepted += t.accepted, all.wrong += t.wrong;
  }
  std::printf("%-26s %8d %8d %4d/%d\n", "all", all.groups, all.taken, all.accepted, all.valid);
  EXPECT_EQ(all.wrong, 0);
  EXPECT_GT(all.groups, 100);
  EXPECT_GT(all.valid, 200);
  EXPECT_GE(all.taken, all.groups * 0.85);
  EXPECT_GE(all.accepted, all.valid * 0.98);
}

TEST(GrammarFixtures, JsonSchemaSuite) {
  const std::filesystem::path folder = kFixtures / "json-schema";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no ../shared/fixtures/json-schema";
  std::map<std::string, Tally> by_file;
  run_suite(folder, false, &by_file);
  report("draft 2020-12", by_file);
}

TEST(GrammarFixtures, JsonSchemaSuiteDraft7) {
  const std::filesystem::path folder = "/usr/share/json-schema-test-suite/tests/draft7";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "json-schema-test-suite is not installed";
  std::map<std::string, Tally> by_file;
  run_suite(folder, true, &by_file);
  report("draft 7", by_file);
}

}  // namespace
}  // namespace sluice::grammar

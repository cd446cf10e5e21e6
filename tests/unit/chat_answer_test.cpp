// Reading responses: data/chat/answers.json has texts in the formats of models. However a text is
// split, the same is read from it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "../paths.h"
#include "chat/answer.h"
#include "chat/harmony.h"
#include "chat/reasoning.h"
#include "chat/text_reader.h"
#include "chat/tool_formats.h"
#include "chat/tool_grammar.h"
#include "chat/tool_schema.h"
#include "grammar/grammar.h"
#include "jinja/json_text.h"

namespace sluice::chat {
namespace {

using Json = nlohmann::ordered_json;

Json read_cases() {
  std::ifstream file(test::source_dir() + "/tests/data/chat/answers.json");
  return Json::parse(file, nullptr, false);
}

Prompt prompt_of(const std::string& text) {
  Prompt prompt;
  prompt.pieces.push_back({text, false});
  return prompt;
}

struct Token {
  std::string text;
  int32_t id = -1;
};

// The vocabulary and the pieces of a case.
std::vector<ControlToken> controls_of(const Json& one) {
  std::vector<std::string> names;
  for (const Json& name : one.value("controls", Json::array())) names.push_back(name);
  for (const Json& piece : one["text"]) {
    if (!piece.is_object()) continue;
    const std::string name = piece["token"];
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  std::vector<ControlToken> out;
  for (size_t i = 0; i < names.size(); ++i) out.push_back({names[i], 1000 - static_cast<int>(i)});
  return out;
}

std::vector<Token> pieces_of_case(const Json& one, const std::vector<ControlToken>& controls) {
  std::vector<Token> out;
  for (const Json& piece : one["text"]) {
    if (piece.is_string()) {
      out.push_back({piece, -1});
      continue;
    }
    const std::string name = piece["token"];
    for (const ControlToken& control : controls) {
      if (control.text == name) out.push_back({name, control.id});
    }
  }
  return out;
}

std::string shown(const AnswerPart& part, bool ids) {
  Json out = {{"reasoning", part.reasoning}, {"content", part.content}, {"calls", Json::array()}};
  for (const ToolCall& call : part.calls) {
    out["calls"].push_back({{"name", call.name}, {"arguments", call.arguments}});
    if (ids) out["calls"].back()["id"] = call.id;
  }
  return out.dump();
}

void add(AnswerPart part, AnswerPart* all) {
  all->reasoning += part.reasoning;
  all->content += part.content;
  all->calls.insert(all->calls.end(), part.calls.begin(), part.calls.end());
}

// Reads the pieces with text cut at `cuts`, which are offsets in the ordinary text.
AnswerPart read_cut(const AnswerPlan& plan, const std::vector<Token>& pieces,
                    const std::set<size_t>& cuts) {
  AnswerReader reader = plan.reader(1);
  AnswerPart all;
  size_t at = 0;
  for (const Token& piece : pieces) {
    if (piece.id >= 0) {
      add(reader.push(piece.text, piece.id), &all);
      continue;
    }
    size_t done = 0;
    for (auto cut = cuts.upper_bound(at); cut != cuts.end() && *cut < at + piece.text.size();
         ++cut) {
      add(reader.push(piece.text.substr(done, *cut - at - done)), &all);
      done = *cut - at;
    }
    add(reader.push(piece.text.substr(done)), &all);
    at += piece.text.size();
  }
  add(reader.finish(), &all);
  EXPECT_EQ(reader.calls(), all.calls.size());
  return all;
}

TEST(ChatAnswer, ReadsEveryFormatHoweverTheTextIsSplit) {
  const Json file = read_cases();
  ASSERT_TRUE(file.is_object());
  for (const Json& one : file["cases"]) {
    const std::string name = one["name"];
    const std::vector<ControlToken> controls = controls_of(one);
    const std::vector<Token> pieces = pieces_of_case(one, controls);
    const AnswerFormat format(one["template"].get<std::string>(), controls);
    const std::string tools =
        one.contains("tools") ? file["tools"][one["tools"].get<std::string>()].dump() : "";
    const std::string choice = one.contains("tool_choice") ? one["tool_choice"].dump() : "";
    AnswerRequest request;
    request.tools = tools;
    request.tool_choice = choice;
    request.separate_reasoning = !one.value("inline", false);
    const Result<AnswerPlan> plan = format.plan(request, prompt_of(one.value("prompt", "Hi")));
    ASSERT_TRUE(plan.ok()) << name << ": " << plan.status().message();
    const bool ids = !one["calls"].empty() && one["calls"][0].contains("id");
    const Json wanted = {
        {"reasoning", one["reasoning"]}, {"content", one["content"]}, {"calls", one["calls"]}};
    size_t length = 0;
    for (const Token& piece : pieces) length += piece.id < 0 ? piece.text.size() : 0;
    std::vector<std::set<size_t>> ways = {{}};
    for (const size_t size : {1, 2, 3, 5, 7, 11}) {
      std::set<size_t>& cuts = ways.emplace_back();
      for (size_t at = size; at < length; at += size) cuts.insert(at);
    }
    for (size_t at = 1; at < length; ++at) ways.push_back({at});
    for (const std::set<size_t>& cuts : ways) {
      const std::string found = shown(read_cut(*plan, pieces, cuts), ids);
      EXPECT_EQ(found, wanted.dump())
          << name << ", cut in " << cuts.size() + 1 << " at " << (cuts.empty() ? 0 : *cuts.begin());
      if (found != wanted.dump()) break;
    }
    bool shows = false;
    for (const ControlToken& control : controls) {
      shows = shows || one["template"].get<std::string>().find(control.text) != std::string::npos;
    }
    EXPECT_TRUE(!shows || plan->show_control_tokens) << name;
  }
}

constexpr const char* kTools = R"([
  {"type": "function", "function": {"name": "save", "strict": true, "parameters": {
    "type": "object", "required": ["unit"], "additionalProperties": false,
    "properties": {"unit": {"type": "string", "enum": ["C", "F"]},
                   "days": {"type": "integer", "minimum": 0, "maximum": 99}}}}},
  {"type": "function", "function": {"name": "list"}}])";

Result<AnswerPlan> plan_of(const std::string& source, const AnswerRequest& request,
                           const std::string& prompt = "Hi",
                           std::span<const ControlToken> controls = {}) {
  return AnswerFormat(source, controls).plan(request, prompt_of(prompt));
}

// Whether a text matches the grammar of a plan; control tokens are written as the check wants them.
grammar::Verdict verdict(const AnswerPlan& plan, const std::string& text) {
  const bool is_grammar = !plan.grammar.empty();
  const auto compiled =
      grammar::compile(is_grammar ? grammar::Kind::kGbnf : grammar::Kind::kJsonSchema,
                       is_grammar ? plan.grammar : plan.json_schema, nullptr);
  EXPECT_TRUE(compiled.ok()) << compiled.status().message() << "\n" << plan.grammar;
  if (!compiled.ok()) return grammar::Verdict::kReject;
  return *grammar::check(**compiled, text);
}

using grammar::Verdict;

TEST(ChatAnswer, ResponseFormatComesAfterReasoning) {
  AnswerRequest request;
  request.response_schema = R"({"type": "object"})";
  const Result<AnswerPlan> plain = plan_of("{{ x }}", request);
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->json_schema, request.response_schema);
  EXPECT_EQ(plain->grammar, "");
  const Result<AnswerPlan> opened = plan_of("<think>", request, "Hi<think>\n");
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(opened->json_schema, "");
  EXPECT_EQ(verdict(*opened, "Hm. {\"a\"</think>\n\n{\"a\":1}"), Verdict::kMatch);
  EXPECT_EQ(verdict(*opened, "{\"a\":1}"), Verdict::kPrefix);
  EXPECT_EQ(verdict(*opened, "Hm.</think>No"), Verdict::kReject);
  const Result<AnswerPlan> able = plan_of("<think>", request);
  EXPECT_EQ(verdict(*able, "{\"a\":1}"), Verdict::kMatch);
  EXPECT_EQ(verdict(*able, "<think>Hm.</think>{\"a\":1}"), Verdict::kMatch);
  const Result<AnswerPlan> harmony = plan_of("<|channel|>analysis", request);
  EXPECT_EQ(verdict(*harmony,
                    "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
                    "<|channel|>final<|message|>{\"a\":1}"),
            Verdict::kMatch);
  EXPECT_EQ(verdict(*harmony, "<|channel|>final<|message|>No"), Verdict::kReject);
}

TEST(ChatAnswer, ControlTokensStandInGrammarsAsTokens) {
  AnswerRequest request;
  request.response_schema = R"({"type": "object"})";
  const ControlToken controls[] = {{"[THINK]", 7}, {"[/THINK]", 8}, {"<s>", 1}};
  const Result<AnswerPlan> plan = plan_of("[THINK]", request, "Hi[THINK]", controls);
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan->show_control_tokens);
  EXPECT_NE(plan->grammar.find("<[8]>"), std::string::npos) << plan->grammar;
  EXPECT_EQ(plan->grammar.find("<[1]>"), std::string::npos) << plan->grammar;
  const std::string close("\xFF\0\0\0\x08", 5);
  EXPECT_EQ(verdict(*plan, "Hm." + close + "{}"), Verdict::kMatch);
  EXPECT_EQ(verdict(*plan, "Hm.[/THINK]{}"), Verdict::kReject);
}

TEST(ChatAnswer, ARequiredCallHasArgumentsOfItsSchemaInEveryFormat) {
  AnswerRequest request;
  request.tools = kTools;
  request.tool_choice = R"({"type": "function", "function": {"name": "save"}})";
  request.parallel_tool_calls = false;
  size_t forms = 0;
  for (const ToolFormat& format : tool_formats()) {
    if (format.body == CallBody::kPython || format.body == CallBody::kGemma) continue;
    // A template that teaches this format: the strings of its first pattern.
    std::string source = "tool " + std::string(format.taught.substr(0, format.taught.find("¦")));
    for (size_t at; (at = source.find("…")) != std::string::npos;) source.replace(at, 3, " ");
    const ToolFormat* found = tool_format(source);
    ASSERT_NE(found, nullptr) << source;
    EXPECT_EQ(found->taught, format.taught);
    const Result<AnswerPlan> plan = plan_of(source, request);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const auto written = [&](const std::string& unit, const std::string& days) {
      const CallOpening opening = call_opening(format, "save");
      std::string text = opening.before + opening.name + opening.behind;
      if (format.body == CallBody::kParams) {
        const auto param = [&](const std::string& name, const std::string& value, bool is_text) {
          std::string mid(format.param_mid), post(format.param_post);
          const bool flags = mid.find("string=") != std::string::npos;
          if (const size_t at = mid.find('#'); at != std::string::npos) {
            mid.replace(at, 1, flags ? is_text ? "true" : "false" : is_text ? "string" : "json");
          }
          if (const size_t at = post.find('@'); at != std::string::npos) post.replace(at, 1, name);
          return std::string(format.param_pre) + name + mid + value + post;
        };
        text += param("unit", unit, true) + param("days", days, false);
      } else {
        text += "{\"unit\": \"" + unit + "\", \"days\": " + days + "}";
      }
      return text.append(format.post).append(format.close);
    };
    const std::string good = written("F", "7");
    EXPECT_EQ(verdict(*plan, good), Verdict::kMatch) << good << "\n" << plan->grammar;
    EXPECT_EQ(verdict(*plan, written("K", "7")), Verdict::kReject) << plan->grammar;
    EXPECT_EQ(verdict(*plan, written("F", "100")), Verdict::kReject) << plan->grammar;
    AnswerReader reader = plan->reader(3);
    AnswerPart all = reader.push(good);
    add(reader.finish(), &all);
    ASSERT_EQ(all.calls.size(), 1u) << good << "\n" << all.content;
    EXPECT_EQ(all.calls[0].name, "save");
    EXPECT_EQ(Json::parse(all.calls[0].arguments), Json::parse(R"({"unit": "F", "days": 7})"));
    EXPECT_EQ(all.content, "") << good;
    ++forms;
  }
  EXPECT_GT(forms, 30u);
}

TEST(ChatAnswer, ARequiredCallIsBegunInThePromptWithoutAGrammar) {
  AnswerRequest request;
  const char* tools = R"([{"type": "function", "function": {"name": "time"}}])";
  request.tools = tools;
  request.can_constrain = false;
  request.tool_choice = R"({"type": "function", "function": {"name": "time"}})";
  for (const ToolFormat& format : tool_formats()) {
    std::string source = "tool " + std::string(format.taught.substr(0, format.taught.find("¦")));
    for (size_t at; (at = source.find("…")) != std::string::npos;) source.replace(at, 3, " ");
    const Result<AnswerPlan> plan = plan_of(source, request);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_EQ(plan->grammar + plan->json_schema, "");
    ASSERT_GE(plan->opening.size(), 2u) << source;
    EXPECT_EQ(plan->opening[1].text, "time");
    EXPECT_TRUE(plan->opening[1].content);
    const bool json = format.body == CallBody::kObject || format.body == CallBody::kJson;
    AnswerReader reader = plan->reader(1);
    AnswerPart all =
        reader.push(std::string(json ? "{}" : "").append(format.post).append(format.close));
    add(reader.finish(), &all);
    EXPECT_EQ(all.content, "") << source;
    ASSERT_EQ(all.calls.size(), 1u) << source;
    EXPECT_EQ(all.calls[0].arguments, "{}");
  }
  const Result<AnswerPlan> thinking = plan_of("tool <tool_call> <think>", request, "Hi<think>\n");
  EXPECT_EQ(thinking->opening[0].text, "\n</think>\n\n<tool_call>\n{\"name\": \"");
  EXPECT_EQ(thinking->opening[2].text, "\", \"arguments\": ");
}

TEST(ChatAnswer, FreeTextMayBeFollowedByCalls) {
  AnswerRequest request;
  request.tools = kTools;
  const Result<AnswerPlan> plan = plan_of("tool <tool_call>", request);
  ASSERT_TRUE(plan.ok());
  const std::string call = "<tool_call>\n{\"name\": \"list\", \"arguments\": {}}\n</tool_call>";
  EXPECT_EQ(verdict(*plan, "Just text."), Verdict::kMatch);
  EXPECT_EQ(verdict(*plan, "Look: " + call + "\n" + call), Verdict::kMatch);
  EXPECT_EQ(verdict(*plan, "<tool_call> is a tag"), Verdict::kReject);
  EXPECT_EQ(verdict(*plan, "<tool_call>\n{\"name\": \"save\", \"arguments\": {}}"),
            Verdict::kReject);
}

TEST(ChatAnswer, InvalidRequestsAreErrors) {
  const char* xml = "tool <function= <parameter=";
  struct Case {
    const char *source, *tools, *choice;
    Code code;
  };
  const std::string save =
      R"([{"type":"function","function":{"name":"f","strict":true,"parameters":)"
      R"({"type":"object","properties":{"a":%}}}}])";
  const Case cases[] = {
      {"tool <tool_call>", R"([{"type":"function"}])", "", Code::kInvalidArgument},
      {"tool <tool_call>", R"([{"type":"custom","custom":{"name":"x"}}])", "",
       Code::kInvalidArgument},
      {"tool <tool_call>", "{}", "", Code::kInvalidArgument},
      {"tool <tool_call>", "[", "", Code::kInvalidArgument},
      {"tool <tool_call>", "", R"("required")", Code::kInvalidArgument},
      {"tool <tool_call>", kTools, R"("sometimes")", Code::kInvalidArgument},
      {"tool <tool_call>", kTools, R"({"type":"function","function":{"name":"other"}})",
       Code::kInvalidArgument},
      {"{{ x }}", kTools, R"("auto")", Code::kInvalidArgument},
      {xml, R"({"type":"string","pattern":"a"})", R"("required")", Code::kSchemaUnsupported},
      {xml, R"({"type":"string","maxLength":3})", R"("required")", Code::kSchemaUnsupported},
      {xml, R"({"$ref":"#/properties/b"})", R"("required")", Code::kSchemaUnsupported},
      {xml, R"({"minimum":3})", R"("required")", Code::kSchemaUnsupported},
      {xml, R"({"allOf":[{}]})", R"("required")", Code::kSchemaUnsupported},
  };
  for (const Case& one : cases) {
    std::string tools = one.tools;
    if (one.source == xml) {
      tools = save;
      tools.replace(tools.find('%'), 1, one.tools);
    }
    AnswerRequest request;
    request.tools = tools;
    request.tool_choice = one.choice;
    const Result<AnswerPlan> plan = plan_of(one.source, request);
    EXPECT_FALSE(plan.ok()) << tools;
    EXPECT_EQ(plan.status().code(), one.code) << tools << plan.status().message();
  }
}

TEST(ChatAnswer, IdsAreOpenAisOrMistrals) {
  for (const bool mistral : {false, true}) {
    AnswerRequest request;
    request.tools = R"([{"type": "function", "function": {"name": "time"}}])";
    const Result<AnswerPlan> plan =
        plan_of(mistral ? "tools [TOOL_CALLS]" : "tools <tool_call>", request);
    std::set<std::string> ids;
    for (const uint64_t seed : {1, 1, 2}) {
      AnswerReader reader = plan->reader(seed);
      const AnswerPart part = reader.push(
          "<tool_call>{\"name\": \"time\"}</tool_call><tool_call>{\"name\": \"time\"}</tool_call>");
      for (const ToolCall& call : part.calls) {
        EXPECT_EQ(call.id.size(), mistral ? 9u : 29u);
        EXPECT_EQ(call.id.starts_with("call_"), !mistral);
        ids.insert(call.id);
      }
    }
    EXPECT_EQ(ids.size(), 4u);  // the same seed gives the same ids
  }
}

TEST(ChatAnswer, TextThatCannotBeACallIsNotHeldBack) {
  AnswerRequest request;
  request.tools = R"([{"type": "function", "function": {"name": "time"}}])";
  const Result<AnswerPlan> plan = plan_of("tools <tool_call>", request);
  for (const char* text : {"Well, ", "a < b", "{\"city\"", "{\"name\": \"Anna\"",
                           "{\"name\": \"time\", \"temperature\"", "<|python_tag|>print"}) {
    EXPECT_EQ(plan->reader(1).push(text).content, text);
  }
  EXPECT_EQ(plan->reader(1).push("<think>Hm, a < b").reasoning, "Hm, a < b");
}

TEST(ChatAnswer, FindsTheFormatsOfRealTemplates) {
  const std::filesystem::path dir = test::shared_dir() + "/fixtures/templates";
  if (!std::filesystem::exists(dir)) GTEST_SKIP() << "no ../shared/fixtures/templates";
  size_t tools = 0, reasoning = 0, n = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    if (entry.path().extension() != ".jinja") continue;
    std::ifstream file(entry.path());
    const std::string source((std::istreambuf_iterator<char>(file)), {});
    ++n;
    tools += AnswerFormat(source, {}).has_tools() ? 1 : 0;
    reasoning += teaches_reasoning(source) ? 1 : 0;
    const std::string name = entry.path().stem().string();
    const std::pair<const char*, const char*> wanted[] = {
        {"Kimi-K3", "<|open|>think<|sep|>"},
        {"tencent-Hy3", "<think:opensource>"},
        {"MiniMax-M3", "<mm:think>"},
        {"ByteDance-Seed-OSS", "<seed:think>"},
        {"Cohere2MoE", "<|START_THINKING|>"},
        {"google-gemma-4-31B-it", "<|channel>thought"},
        {"Apertus-8B-Instruct", "<|inner_prefix|>"},
        {"Qwen3.5-4B", "<think>"}};
    for (const auto& [model, open] : wanted) {
      EXPECT_TRUE(name != model || reasoning_format(source).open == open) << name;
    }
  }
  EXPECT_EQ(n, 70u);
  EXPECT_EQ(tools, 66u);
  EXPECT_GE(reasoning, 40u);
}

TEST(ChatJson, ChecksAndTakesApartWithoutConverting) {
  for (const char* good : {"1", "-0.5e+10", "1e400", "12345678901234567890123", "\"\\u00e9\\n\"",
                           "[]", " { \"a\" : [ 1 , null ] } ", "true"}) {
    EXPECT_TRUE(is_json(good)) << good;
  }
  for (const char* bad : {"", "01", "+1", "1.", ".5", "\"\\x\"", "\"a\nb\"", "[1,]", "{\"a\":}",
                          "{a:1}", "nul", "1 2", "\"", "[", "{\"a\""}) {
    EXPECT_FALSE(is_json(bad)) << bad;
  }
  EXPECT_TRUE(is_json(std::string(200, '[') + std::string(200, ']')));
  EXPECT_FALSE(is_json(std::string(201, '[') + std::string(201, ']')));
  const std::string text = R"({"a\"b": {"x": [1, 2]}, "n": 1e400 , "s": "\ud83d\ude00\ud83d"})";
  const std::vector<JsonMember> members = json_members(text);
  ASSERT_EQ(members.size(), 3u);
  EXPECT_EQ(members[0].name, "a\"b");
  EXPECT_EQ(members[0].value, R"({"x": [1, 2]})");
  EXPECT_EQ(members[1].value, "1e400");
  EXPECT_EQ(json_string(members[2].value), "\xF0\x9F\x98\x80\xEF\xBF\xBD");
  EXPECT_EQ(json_items("[1, [2, 3], \"]\"]").size(), 3u);
  EXPECT_EQ(json_compact("{ \"a b\" : [ 1 ] }"), "{\"a b\":[1]}");
  // Every beginning of a text is walked without reading past its end.
  for (size_t size = 0; size <= text.size(); ++size) {
    const std::string_view part = std::string_view(text).substr(0, size);
    for (const JsonMember& member : json_members(part)) json_items(member.value).clear();
    EXPECT_EQ(is_json(part), size == text.size());
  }
}

TEST(ChatSchema, SplitsParametersIntoTextAndJson) {
  const auto of = [](const std::string& own, const std::string& more = "") {
    return parameters_of(
        R"({"type":"object","required":["a"],"properties":{"a":)" + own + "}" + more + "}", true);
  };
  struct Case {
    const char *own, *more;
    bool any;
    std::vector<std::string> texts, values;
  };
  const Case cases[] = {
      {R"({"type":"string"})", "", true, {}, {}},
      {R"({"type":["string","null"]})", "", true, {}, {R"({"type":["null"]})"}},
      {R"({"enum":["x",5,null]})", "", false, {"x"}, {R"({"enum":[5,null]})"}},
      {R"({"type":"integer","minimum":3})", "", false, {}, {R"({"minimum":3,"type":["integer"]})"}},
      {R"({"enum":[12345678901234567890]})", "", false, {}, {R"({"enum":[12345678901234567890]})"}},
      {R"({"anyOf":[{"type":"string"},{"type":"boolean"}]})",
       "",
       true,
       {},
       {R"({"type":["boolean"]})"}},
      {R"({"$ref":"#/$defs/e"})", R"(,"$defs":{"e":{"enum":["x"]}})", false, {"x"}, {}},
  };
  for (const Case& one : cases) {
    const auto found = of(one.own, one.more);
    ASSERT_TRUE(found.ok()) << one.own << found.status().message();
    EXPECT_EQ((*found)[0].any_text, one.any) << one.own;
    EXPECT_EQ((*found)[0].texts, one.texts) << one.own;
    EXPECT_EQ((*found)[0].values, one.values) << one.own;
  }
  const std::pair<const char*, const char*> bad[] = {
      {R"({"$ref":"#/$defs/e","minimum":1})", R"(,"$defs":{"e":{}})"},
      {R"({"$ref":"#"})", ""},
      {R"({"type":"string","format":"date"})", ""},
      {R"({"type":"string"})", R"(,"minProperties":1)"},
      {"false", ""},
      // References that double what is looked at, again and again, end early.
      {R"({"$ref":"#/$defs/a"})",
       R"(,"$defs":{"a":{"anyOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/a"}]}})"}};
  for (const auto& [own, more] : bad) {
    EXPECT_EQ(of(own, more).status().code(), Code::kSchemaUnsupported) << own;
  }
}

}  // namespace
}  // namespace sluice::chat

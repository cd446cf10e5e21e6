// How messages are written for templates of different kinds, and that a prompt which lacks a
// message's text is an error. The templates here are as small as the habit that they show.
#include <gtest/gtest.h>

#include <string>

#include "chat/template.h"

namespace sluice::chat {
namespace {

struct Asked {
  std::string_view tools;
  bool continues = false;
  bool allow_missing = false;
};

Result<Prompt> ask(std::string_view source, std::string_view messages, const Asked& asked = {}) {
  const Result<Template> chat = Template::create({}, source);
  if (!chat.ok()) return chat.status();
  Request request;
  request.messages = messages;
  request.tools = asked.tools;
  request.continue_final_message = asked.continues;
  request.allow_missing_text = asked.allow_missing;
  return chat->render(request);
}

std::string rendered(std::string_view source, std::string_view messages, const Asked& asked = {}) {
  const Result<Prompt> prompt = ask(source, messages, asked);
  return prompt.ok() ? prompt->text() : prompt.status().message();
}

// A conversation with one tool call, whose assistant's message is `said` beside the call.
std::string tool_round(const std::string& said, const std::string& arguments = R"("{\"a\": 1}")",
                       const std::string& id = R"("id":"call_1234567890",)") {
  const std::string of = id.empty() ? "" : R"("tool_call_id":"call_1234567890",)";
  return R"([{"role":"user","content":"Hi"},{"role":"assistant",)" + said + R"("tool_calls":[{)" +
         id + R"("function":{"name":"get","arguments":)" + arguments + R"(}}]},{"role":"tool",)" +
         of + R"("content":"7"}])";
}

constexpr const char* kPlain = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";

// Shows calls as name(arguments), after the content.
std::string with_calls(const std::string& content, const std::string& arguments = "tojson") {
  return "{% for m in messages %}<{{ m.role }}>" + content +
         "{% for c in m.tool_calls %}{{ c.function.name }}({{ c.function.arguments | " + arguments +
         " }}){% endfor %}{% endfor %}";
}

TEST(ChatMessages, ContentBesideCallsIsWhatTheTemplateTakes) {
  const std::string prints = with_calls("{{ m.content }}");
  const std::string searches = with_calls("{{ 'x' if 'y' in m.content }}{{ m.content }}");
  const std::string wants_null = with_calls(
      "{% if m.content is not none %}{{ m.content }}"
      "{% set m = {} %}{% endif %}");
  const std::string expected = "<user>Hi<assistant>get({\"a\": 1})<tool>7";
  for (const std::string& source : {prints, searches, wants_null}) {
    for (const char* said : {R"("content":null,)", R"("content":"",)", ""}) {
      EXPECT_EQ(rendered(source, tool_round(said)), expected) << source << said;
    }
  }
  // Text that the template would omit beside calls is a message of its own.
  const std::string either =
      "{% for m in messages %}<{{ m.role }}>{% if m.tool_calls %}"
      "{{ m.tool_calls[0].function }}{% else %}{{ m.content }}{% endif %}"
      "{% endfor %}";
  EXPECT_EQ(rendered(either, tool_round(R"("content":"Let me see.",)")),
            "<user>Hi<assistant>Let me see.<assistant>{'name': 'get', 'arguments': '{\"a\": 1}'}"
            "<tool>7");
}

TEST(ChatMessages, RolesOfSystemMessages) {
  constexpr const char* kDeveloper =
      R"([{"role":"developer","content":"Be brief."},{"role":"user","content":"Hi"}])";
  const std::string knows =
      "{% for m in messages %}{% if m.role not in ['system', 'user', "
      "'assistant'] %}{{ raise_exception('role') }}{% endif %}"
      "<{{ m.role }}>{{ m.content }}{% endfor %}";
  const std::string drops =
      "{% for m in messages %}{% if m.role == 'system' or m.role == 'user' %}"
      "<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}";
  const std::string none =
      "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}"
      "{% endif %}{% for m in messages if m.role != 'developer' %}"
      "<{{ m.role }}>{{ m.content }}{% endfor %}";
  EXPECT_EQ(rendered(kPlain, kDeveloper), "<developer>Be brief.<user>Hi");
  EXPECT_EQ(rendered(knows, kDeveloper), "<system>Be brief.<user>Hi");
  EXPECT_EQ(rendered(drops, kDeveloper), "<system>Be brief.<user>Hi");
  EXPECT_EQ(rendered(none, kDeveloper), "<user>Be brief.\n\nHi");
  // Two at the beginning, and one later.
  const std::string first =
      "{% if messages[0].role == 'system' %}S:{{ messages[0].content }}"
      "{% endif %}{% for m in messages if m.role in ['user', 'assistant'] %}"
      "<{{ m.role }}>{{ m.content }}{% endfor %}";
  EXPECT_EQ(
      rendered(first, R"([{"role":"system","content":"A"},{"role":"developer","content":"B"},)"
                      R"({"role":"user","content":"Hi"},{"role":"assistant","content":"C"},)"
                      R"({"role":"system","content":"D"},{"role":"user","content":"E"}])"),
      "S:A\n\nB<user>Hi<assistant>C<user>D\n\nE");
}

TEST(ChatMessages, MembersThatAreNothingAreRemoved) {
  const std::string source =
      "{% for m in messages %}{{ m.content }}{{ m.keys() | list }}"
      "{% for c in m.tool_calls %}{% endfor %}{% endfor %}";
  EXPECT_EQ(
      rendered(source, R"([{"role":"user","content":"a","name":null,"tool_call_id":null},)"
                       R"({"role":"assistant","content":"b","tool_calls":null,"refusal":null,)"
                       R"("audio":null,"annotations":[],"function_call":null,)"
                       R"("reasoning_content":null},)"
                       R"({"role":"assistant","content":"c","tool_calls":[]}])"),
      "a['role', 'content']b['role', 'content']c['role', 'content']");
}

TEST(ChatMessages, ArgumentsAreWhatTheTemplateTakes) {
  const std::string objects = with_calls("{{ m.content }}", "items | list");
  const std::string json = with_calls("{{ m.content }}");
  const std::string text = with_calls("{{ m.content }}", "trim");
  const auto shown = [](const std::string& source, const std::string& arguments) {
    const std::string out = rendered(source, tool_round(R"("content":"",)", arguments));
    const size_t begin = out.find("get(");
    return begin == std::string::npos ? out : out.substr(begin, out.rfind("<tool>") - begin);
  };
  const std::string big = R"("{\"a\": 12345678901234567890, \"b\":1e400}")";
  EXPECT_EQ(shown(objects, R"("{\"a\": 1}")"), "get([('a', 1)])");
  EXPECT_EQ(shown(json, big), R"(get({"a": 12345678901234567890, "b": 1e400}))");
  EXPECT_EQ(shown(text, big), R"(get({"a": 12345678901234567890, "b":1e400}))");
  EXPECT_EQ(shown(text, R"({"a": {"b": 1}})"), R"(get({"a": {"b": 1}}))");
  for (const char* empty : {R"("")", R"(" ")", "null", R"("{}")", "{}"}) {
    EXPECT_EQ(shown(json, empty), "get({})") << empty;
    EXPECT_EQ(shown(text, empty), "get({})") << empty;
    EXPECT_EQ(shown(objects, empty), "get([])") << empty;
  }
  // Text that is not JSON is shown, wherever the template can.
  EXPECT_EQ(shown(text, R"("{\"a\": ")"), R"(get({"a":))");
  EXPECT_EQ(shown(json, R"("{\"a\": ")"), R"(get("{\"a\": "))");
  EXPECT_EQ(shown(objects, R"("{\"a\": ")"), R"(get([('arguments', '{"a": ')]))");
}

TEST(ChatMessages, IdsAndNamesOfCalls) {
  const std::string ids =
      "{% for m in messages %}{% for c in m.tool_calls %}{{ c.type }}"
      "{{ c.function }}{% if c.id | length != 9 %}{{ raise_exception('id') }}"
      "{% endif %}[{{ c.id }}]{% endfor %}{{ m.content }}"
      "{% if m.role == 'tool' %}[{{ m.tool_call_id }}]{% endif %}{% endfor %}";
  for (const char* id : {R"("id":"call_1234567890",)", ""}) {
    const std::string out = rendered(ids, tool_round(R"("content":"",)", "{}", id));
    const size_t first = out.find('['), last = out.rfind('[');
    ASSERT_NE(first, std::string::npos) << out;
    EXPECT_EQ(out.substr(first, 11), out.substr(last)) << out;
    EXPECT_EQ(out[first + 10], ']');
  }
  EXPECT_NE(rendered(ids, tool_round(R"("content":"",)", "{}")).find("Hifunction{"),
            std::string::npos);
  const std::string names = with_calls("{{ m.content }}{{ m.name }}");
  EXPECT_EQ(rendered(names, tool_round(R"("content":"",)", "{}")),
            "<user>Hi<assistant>get({})<tool>7get");
}

TEST(ChatMessages, ParallelCalls) {
  constexpr const char* kTwo =
      R"([{"role":"user","content":"Hi"},{"role":"assistant","content":"Both.","tool_calls":[)"
      R"({"id":"1","function":{"name":"f","arguments":"{}"}},)"
      R"({"id":"2","function":{"name":"g","arguments":"{}"}}]},)"
      R"({"role":"tool","tool_call_id":"2","content":"second"},)"
      R"({"role":"tool","tool_call_id":"1","content":"first"},{"role":"user","content":"?"}])";
  EXPECT_EQ(rendered(with_calls("{{ m.content }}"), kTwo),
            "<user>Hi<assistant>Both.f({})g({})<tool>second<tool>first<user>?");
  const std::string single = with_calls(
      "{% if m.tool_calls | length > 1 %}"
      "{{ raise_exception('one') }}{% endif %}{{ m.content }}");
  EXPECT_EQ(rendered(single, kTwo),
            "<user>Hi<assistant>Both.f({})<tool>first<assistant>g({})<tool>second<user>?");
}

TEST(ChatMessages, CallsOfTemplatesWithoutToolsAreText) {
  const std::string turns =
      "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == "
      "0) %}{{ raise_exception('turns') }}{% endif %}<{{ m.role }}>"
      "{{ m.content }}{% endfor %}";
  EXPECT_EQ(rendered(turns, R"([{"role":"user","content":"Hi"},{"role":"assistant","content":null,)"
                            R"("tool_calls":[{"function":{"name":"f","arguments":"{\"a\":1}"}}]},)"
                            R"({"role":"tool","content":"7"},{"role":"user","content":"So?"}])"),
            "<user>Hi<assistant><tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":1}}\n"
            "</tool_call><user><tool_response>\n7\n</tool_response>\nSo?");
}

TEST(ChatMessages, ReasoningGoesWhereTheTemplateReadsIt) {
  for (const std::string read : {"reasoning_content", "reasoning", "thinking"}) {
    const std::string source =
        with_calls("{{ '(' ~ m." + read + " ~ ')' if m." + read + " }}{{ m.content }}");
    for (const char* given : {"reasoning_content", "reasoning", "thinking"}) {
      const std::string said = "\"content\":null,\"" + std::string(given) + "\":\"Hm.\",";
      EXPECT_EQ(rendered(source, tool_round(said)),
                "<user>Hi<assistant>(Hm.)get({\"a\": 1})<tool>7")
          << read << given;
    }
    EXPECT_EQ(
        rendered(source, R"([{"role":"user","content":"Hi"},{"role":"assistant","content":)"
                         R"([{"type":"thinking","thinking":"Hm."},{"type":"text","text":"A"}]}])"),
        "<user>Hi<assistant>(Hm.)A");
  }
  // Reasoning may be omitted, text may not.
  const std::string either =
      "{% for m in messages %}{{ m.content }}{% if m.thinking and m.content %}"
      "{{ raise_exception('both') }}{% endif %}{{ m.thinking }}{% endfor %}";
  EXPECT_EQ(rendered(either, R"([{"role":"user","content":"Hi"},{"role":"assistant",)"
                             R"("content":"A","reasoning_content":"Hm."}])"),
            "HiA");
  const std::string cuts =
      "{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}";
  EXPECT_EQ(rendered(cuts, R"([{"role":"user","content":"Hi"},)"
                           R"({"role":"assistant","content":"<think>Hm.</think>A"}])"),
            "HiA");
}

TEST(ChatMessages, PartsOfContent) {
  constexpr const char* kParts =
      R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},)"
      R"({"role":"assistant","content":[{"type":"refusal","refusal":"no"}]},)"
      R"({"role":"assistant","content":null,"refusal":"never"}])";
  EXPECT_EQ(rendered(kPlain, kParts), "<user>ab<assistant>no<assistant>never");
  const std::string typed =
      "{% for m in messages %}<{{ m.role }}>{% for p in m.content if p.type == "
      "'text' %}{{ p.text }}{% endfor %}{% endfor %}";
  EXPECT_EQ(rendered(typed, kParts), "<user>ab<assistant>no<assistant>never");
  EXPECT_EQ(rendered(typed, R"([{"role":"user","content":"Hi"}])"), "<user>Hi");
  const auto code_of = [](const std::string& type) {
    const Result<Prompt> prompt =
        ask(kPlain, R"([{"role":"user","content":[{"type":")" + type + R"("}]}])");
    if (prompt.ok()) return Code::kOk;
    EXPECT_NE(prompt.status().message().find(type), std::string::npos);
    return prompt.status().code();
  };
  for (const char* type : {"image_url", "image", "input_audio", "file"}) {
    EXPECT_EQ(code_of(type), Code::kNotSupported) << type;
  }
  for (const char* type : {"text", "strange", ""}) {
    EXPECT_EQ(code_of(type), Code::kInvalidArgument) << type;
  }
}

TEST(ChatMessages, FunctionsOfTheOldApi) {
  EXPECT_EQ(rendered(with_calls("{{ m.content }}"),
                     R"([{"role":"user","content":"Hi"},{"role":"assistant","content":null,)"
                     R"("function_call":{"name":"f","arguments":"{\"a\": 1}"}},)"
                     R"({"role":"function","name":"f","content":"7"}])"),
            "<user>Hi<assistant>f({\"a\": 1})<tool>7");
}

TEST(ChatMessages, MissingTextIsAnError) {
  const std::string users =
      "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}";
  constexpr const char* kMessages =
      R"([{"role":"user","content":"Hi"},{"role":"critic","content":"Bad."}])";
  const Result<Prompt> lost = ask(users, kMessages);
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.status().code(), Code::kChatTemplate);
  EXPECT_EQ(lost.status().message(), "the chat template omits text of message 1, role 'critic'");
  Asked allowing;
  allowing.allow_missing = true;
  EXPECT_EQ(rendered(users, kMessages, allowing), "Hi");
  const std::pair<const char*, bool> ways[] = {
      {"{{ m.content | trim }}", true},
      {"{{ m.content | tojson }}", true},
      {"{{ m.content | upper }}", true},
      {"{{ m.content.split() | join(' ') }}", true},
      {"{{ m.content | e }}", true},
      {"{{ m.content.replace('/no_think', '') }}", true},
      {"{{ m.content[::-1] }}", true},
      {"{{ m.content[:4] }}", false},
      {"{{ m.content[2:] }}", false},
      {"{{ m.content | length }}", false},
      {"{{ m.content.split('b')[0] }}", false},
  };
  for (const auto& [way, whole] : ways) {
    const std::string source = "{% for m in messages %}" + std::string(way) + "{% endfor %}";
    const Result<Prompt> prompt =
        ask(source, R"([{"role":"user","content":" a\"\n\u00df b /no_think "}])");
    EXPECT_EQ(prompt.ok(), whole) << way;
  }
  // Calls count as well.
  EXPECT_NE(
      rendered("{% for m in messages %}{{ m.content }}{{ raise_exception('x') if m.content and "
               "'tool_call' in m.content }}{% endfor %}",
               tool_round(R"("content":"",)"))
          .find("omits a tool call of message 1, role 'assistant'"),
      std::string::npos);
}

TEST(ChatMessages, ContinuesTheFinalMessage) {
  const std::string source =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}";
  constexpr const char* kMessages =
      R"([{"role":"user","content":"Say it"},{"role":"assistant","content":"It is "}])";
  Asked continuing;
  continuing.continues = true;
  EXPECT_EQ(rendered(source, kMessages, continuing), "<user>Say it<end><assistant>It is ");
  for (const char* messages : {R"([{"role":"user","content":"Say it"}])",
                               R"([{"role":"user","content":"Say it"},{"role":"assistant",)"
                               R"("content":""}])"}) {
    EXPECT_FALSE(ask(source, messages, continuing).ok());
  }
}

TEST(ChatMessages, TellsWhetherToolsAreSeen) {
  Asked asked;
  asked.tools = R"([{"type":"function","function":{"name":"content"}}])";
  constexpr const char* kMessages = R"([{"role":"user","content":"Hi"}])";
  const std::string shows = std::string(kPlain) + "{{ tools | tojson if tools }}";
  EXPECT_TRUE(ask(shows, kMessages, asked)->sees_tools);
  EXPECT_FALSE(ask(kPlain, kMessages, asked)->sees_tools);
  EXPECT_FALSE(ask(shows, kMessages)->sees_tools);
}

}  // namespace
}  // namespace sluice::chat

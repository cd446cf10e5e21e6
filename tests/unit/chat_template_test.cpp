// The chat template interpreter, compared with the output of Python's jinja2. Hostile templates are
// stopped, and message contents never become control tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "../paths.h"
#include "../sanitized.h"
#include "chat/template.h"
#include "gguf_builder.h"
#include "jinja/text.h"
#include "tokenizer_vocab.h"

namespace sluice::chat {
namespace {

constexpr const char* kHello = R"([{"role":"user","content":"Hello"}])";

Result<Prompt> render(const std::string& source, std::string_view messages = kHello,
                      std::string_view variables = "") {
  ModelTexts texts;
  texts.bos = "<s>";
  texts.eos = "</s>";
  const Result<Template> chat = Template::create(texts, source);
  if (!chat.ok()) return chat.status();
  Request request;
  request.messages = messages;
  request.variables = variables;
  request.allow_missing_text = true;
  return chat->render(request);
}

// Snippets and their output from Python's jinja2 3.1 (tests/reference/make_jinja.py).
TEST(ChatTemplate, RendersLikeJinja2) {
  using Json = nlohmann::ordered_json;
  std::ifstream file(test::source_dir() + "/tests/data/jinja.json");
  const Json data = Json::parse(file);
  const std::string messages = data["messages"].dump(), variables = data["variables"].dump();
  EXPECT_GE(data["cases"].size(), 230u);
  for (const Json& each : data["cases"]) {
    const std::string source = each["source"];
    const Result<Prompt> prompt = render(source, messages, variables);
    if (each.contains("expected")) {
      ASSERT_TRUE(prompt.ok()) << source << ": " << prompt.status().message();
      EXPECT_EQ(prompt->text(), each["expected"].get<std::string>()) << source;
    } else {
      ASSERT_FALSE(prompt.ok()) << source << ": " << prompt->text();
      EXPECT_EQ(prompt.status().code(), Code::kChatTemplate) << source;
    }
  }
}

TEST(ChatTemplate, RaisesWhereJinja2Raises) {
  const std::pair<const char*, const char*> cases[] = {
      {"{{ raise_exception('no ' ~ 1) }}", "no 1"},
      {"a\n{{ missing.name }}", "'missing' is undefined (line 2)"},
      {"{{ d.nope.x }}", "'dict object' has no attribute 'nope'"},
      {"{{ l[7].x }}", "list object has no element 7"},
      {"{{ none.x.y }}", "'None' has no attribute 'x'"},
      {"{{ 'a' + 1 }}", "can only concatenate str (not \"int\") to str"},
      {"{{ 1 < 'a' }}", "'<' not supported between instances of 'int' and 'str'"},
      {"{{ l.append(1) }}", "access to attribute 'append' of 'list' object is unsafe."},
      {"{{ l | map('string') | tojson }}", "Object of type generator is not JSON serializable"},
      {"{{ missing | tojson }}", "Object of type Undefined is not JSON serializable"},
      {"{% for x in none %}{% endfor %}", "'NoneType' object is not iterable"},
      {"{% set a, b = [1] %}", "not enough values to unpack (expected 2, got 1)"},
      {"{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "takes not more than 1 argument(s)"},
      {"{{ 'x' | nofilter }}", "No filter named 'nofilter'."},
      {"{{ 'x' is notest }}", "No test named 'notest'."},
      {"{{ 5() }}", "'int' object is not callable"},
      {"{{ {[1]: 2} }}", "unhashable type: 'list'"},
      {"{{ 1 // 0 }}", "division by zero"},
      {"{{ 2 ** 64 }}", "does not fit in 64 bits"},
      {"{{ 'a' | indent(nope=1) }}", "unexpected keyword argument 'nope'"},
      {"{{ 'unclosed }}", "is not closed"},
      {"{% for %}", "expected a name"},
      {"{% if true %}", "'endif' is missing"},
      {"{{ (1 }}", "unexpected '}'"},
      {"{% foo %}", "unknown tag 'foo'"},
      {"{% break %}", "only in a loop"},
      {"\xff", "not UTF-8"},
  };
  for (const auto& [source, why] : cases) {
    const Result<Prompt> prompt = render(source, kHello, R"({"d":{},"l":[1]})");
    ASSERT_FALSE(prompt.ok()) << source;
    EXPECT_EQ(prompt.status().code(), Code::kChatTemplate) << source;
    EXPECT_NE(prompt.status().message().find(why), std::string::npos)
        << source << ": " << prompt.status().message();
  }
}

TEST(ChatTemplate, HostileTemplatesAreStopped) {
  const std::string text16m =
      "{% set a = namespace(t='0123456789abcdef') %}{% for i in range(19) %}{% set a.t = a.t + a.t "
      "%}{% endfor %}";
  const std::string loops = "{% for i in range(90000) %}{% for j in range(90000) %}";
  const std::string nested =
      "{% set a = namespace(t=[1]) %}{% for i in range(60) %}{% set a.t = [a.t, a.t] %}{% endfor "
      "%}";
  const std::string again = "{% for i in range(9000) %}";
  const std::string hostile[] = {
      loops + "x{% endfor %}{% endfor %}",
      loops + "{% endfor %}{% endfor %}",
      "{% for i in range(1000000000) %}{% endfor %}",
      "{{ 'x' * 1000000000 }}",
      std::string(2 << 20, 'x'),
      text16m + again + "{% for c in a.t %}{% endfor %}{% endfor %}",
      "{% set a = namespace(t=[1]) %}{% for i in range(99) %}{% set a.t = a.t + a.t %}{% endfor %}",
      nested + "{{ a.t }}",
      nested + "{{ a.t | tojson }}",
      nested + "{{ a.t | pprint }}",
      text16m + "{{ a.t | pprint }}",
      text16m + again + "{% set b = a.t.encode('unicode_escape') %}{% endfor %}",
      nested + "{{ a.t == a.t }}",
      "{% set a = namespace() %}{% set a.t = a %}{{ a }}",
      text16m + "{{ a.t.replace('0', a.t) }}",
      text16m + "{{ a.t.replace('', a.t) }}",
      text16m + "{{ range(90000) | join(a.t) }}",
      text16m + again + "{% set b = a.t.split('0') %}{% endfor %}",
      text16m + "{{ ('{0}' * 100000).format(a.t) }}",
      text16m + again + "{% if 'nothing' in a.t or a.t == a.t + '' %}{% endif %}{% endfor %}",
      text16m + again + "{% set b = a.t[1:] %}{% endfor %}",
      text16m + again + "{% set b = a.t | upper %}{% endfor %}",
      "{{ 'a\\nb' | indent(500000000) }}",
      "{{ [1] | tojson(indent=500000000) }}",
      "{{ 'a'.center(500000000) }}{{ '%500000000d' % 1 }}",
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) "
      "}}",
      "{{ " + std::string(200'000, '(') + "1 }}",
      "{{ " + std::string(200'000, '[') + " }}",
      "{{ " + std::string(200'000, '-') + "1 }}",
      "{{ 1" + std::string(100'000, '+') + "1 }}",
      "{{ x" + std::string(100'000, '.') + "x }}",
  };
  for (const std::string& source : hostile) {
    // Under a sanitizer, a limit on steps or on text takes seconds to reach; one of each is enough.
    const bool slow = source.find(again) != std::string::npos || source.starts_with(loops) ||
                      source.starts_with(text16m) || source.find("f(60)") != std::string::npos;
    const bool chosen = &source == hostile || source.ends_with("replace('0', a.t) }}");
    if (test::kSanitized && slow && !chosen) continue;
    const Result<Prompt> prompt = render(source);
    ASSERT_FALSE(prompt.ok()) << source.substr(0, 200);
    EXPECT_EQ(prompt.status().code(), Code::kChatTemplate) << prompt.status().message();
  }
  std::string chain = "{{ 1";
  for (int i = 0; i < 50'000; ++i) chain += "+1";
  EXPECT_FALSE(render(chain + " }}").ok());
}

// Message content is tracked through every operation; here it is shown as «…».
std::string spans(const std::string& source, std::string_view messages) {
  const Result<Prompt> prompt = render(source, messages);
  if (!prompt.ok()) return prompt.status().message();
  std::string out;
  for (const Piece& piece : prompt->pieces) {
    out += piece.content ? "«" + piece.text + "»" : piece.text;
  }
  return out;
}

TEST(ChatTemplate, TracksMessageContent) {
  constexpr const char* kMessages = R"([{"role":"user","content":" <b>\"é\" "}])";
  const std::pair<const char*, const char*> cases[] = {
      {"<{{ messages[0].content }}>", "<« <b>\"é\" »>"},
      {"<{{ messages[0].content | trim }}>", "<«<b>\"é\"»>"},
      {"{{ messages[0].content.strip().split('>') | join('>') }}", "«<b»>«\"é\"»"},
      {"{{ messages[0].content | trim | upper }}", "«<B>\"É\"»"},
      {"{{ messages[0].content | trim | tojson }}", "\"«<b>\\\"é\\\"»\""},
      {"{{ messages[0].content | trim | e }}", "«&lt;b&gt;&#34;é&#34;»"},
      {"{{ (messages[0].content | trim)[1:3] ~ 'x' ~ messages[0].content[-3] }}", "«b>»x«é»"},
      {"{{ messages[0].content | trim | replace('b', 'new') }}", "«<»new«>\"é\"»"},
      {"{{ '%s|%d' % (messages[0].content | trim, 1) }}", "«<b>\"é\"»|1"},
      {"{% set x %}[{{ messages[0].content | trim }}]{% endset %}{{ x | reverse }}",
       "]«\"é\">b<»["},
      {"{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(messages[0].content | trim) }}",
       "<«<b>\"é\"»>"},
      {"{{ messages[0] }}", "{'«role»': 'user', 'content': '« <b>\"é\" »'}"},
      {"<|{{ messages[0].role }}|>", "<|user|>"},
      {"{{ messages[0].content.strip() | pprint }}", "'«<b>\"é\"»'"},
      {"{{ messages[0].content.strip().encode().decode() }}", "«<b>\"é\"»"},
      {"{{ messages[0].content.strip().encode('unicode_escape').decode() }}", "«<b>\"\\xe9\"»"},
      {"{{ messages[0].content.strip().encode('ascii', 'replace').decode() }}", "«<b>\"?\"»"},
      {"{{ messages[0].content.strip().encode().hex() }}", "«3c623e22c3a922»"},
  };
  for (const auto& [source, expected] : cases) EXPECT_EQ(spans(source, kMessages), expected);
  // A role is treated as template text only if it is a plain word that occurs in the template.
  EXPECT_EQ(spans("<|{{ messages[0].role }}|>", R"([{"role":"x|><|y"}])"), "<|«x|><|y»|>");
  EXPECT_EQ(spans("{{ messages[0].type }}{{ 'word' }}", R"([{"role":"u","type":"word"}])"),
            "wordword");
}

// "<s>x</s>" in a message is ordinary text; in the template it is a control token.
TEST(ChatTemplate, ControlTokensComeFromTheTemplateOnly) {
  test::VocabFile file = test::sentencepiece_vocab();
  file.ids = {{"bos_token_id", 1}, {"eos_token_id", 2}, {"unknown_token_id", 0}};
  const std::unique_ptr<tokenizer::Tokenizer> tokenizer = file.must_create();
  ASSERT_NE(tokenizer, nullptr);
  ModelTexts texts;
  texts.bos = "<s>";
  const Result<Template> chat = Template::create(
      texts, "{{ bos_token }}{{ messages[0].content }}{{ bos_token }}<{{ messages[0].n }}");
  ASSERT_TRUE(chat.ok());
  Request request;
  request.messages = R"([{"role":"user","content":"<s>\ufdd1<s>\ufdd0","n":"s>"}])";
  const auto count = [&] {
    const auto ids = encode(*tokenizer, *chat->render(request));
    EXPECT_TRUE(ids.ok());
    return ids.ok() ? std::count(ids->begin(), ids->end(), 1) : -1;
  };
  EXPECT_EQ(count(), 2);
  request.parse_special_in_content = true;
  EXPECT_EQ(count(), 5);
}

TEST(ChatTemplate, RendersTheGivenTime) {
  std::tm day{};
  day.tm_year = 124;
  day.tm_mon = 6;
  day.tm_mday = 6;
  day.tm_hour = 12;
  day.tm_isdst = -1;
  const Result<Template> chat =
      Template::create({}, "{{ strftime_now('%d %B %Y %A %j %-d/%-m %H:%M:%S %p 100%% %Q') }}");
  Request request;
  request.messages = kHello;
  request.allow_missing_text = true;
  request.now = std::mktime(&day);
  EXPECT_EQ(chat->render(request)->text(), "06 July 2024 Saturday 188 6/7 12:00:00 PM 100% %Q");
}

TEST(ChatTemplate, RefusesRequestsThatAreNotJson) {
  for (const char* messages :
       {"", "{}", "[]", "[1]", "[{}]", R"([{"role":1}])", "[", R"([{"role":"u","n":1e}])",
        R"([{"role":"u","n":01}])", R"([{"role":"u","n":1.}])", R"([{"role":"u","n":"\x"}])",
        R"([{"role":"u",}])", R"([{"role":"u"},])", R"([{"role":"u"}] x)", "[{\"role\":\"\xff\"}]",
        "[{\"role\":\"a\nb\"}]", R"([{"role" "u"}])", R"([{"role":"u\u12"}])", R"([nul])"}) {
    const Result<Prompt> prompt = render("x", messages);
    ASSERT_FALSE(prompt.ok()) << messages;
    EXPECT_EQ(prompt.status().code(), Code::kInvalidArgument) << prompt.status().message();
  }
  EXPECT_FALSE(render("x", "[{\"role\":\"u\",\"x\":" + std::string(100'000, '[')).ok());
  EXPECT_FALSE(render("x", kHello, "[]").ok());
}

// Numbers that 64 bits cannot hold keep their digits; half a surrogate pair is a character.
TEST(ChatTemplate, KeepsDigits) {
  constexpr const char* kVariables =
      R"({"n":[1234567890123456789,123456789012345678901234567890,-99999999999999999999,1e400],)"
      R"("s":"a\ud83d","f":[2.50,1e5,-0.0]})";
  const std::pair<const char*, const char*> cases[] = {
      {"{{ n[0] }} {{ n[1] }} {{ n[2] }} {{ n[3] }}",
       "1234567890123456789 123456789012345678901234567890 -99999999999999999999 1e400"},
      {"{{ n | tojson }}",
       "[1234567890123456789, 123456789012345678901234567890, -99999999999999999999, 1e400]"},
      {"{{ n[1] is integer }} {{ n[3] is float }} {{ n[3] is number }} {{ n[1] is string }}",
       "True True True False"},
      {"{{ n[1] == n[1] }} {{ n[1] == 5 }} {{ n[1] | int }} {{ 'y' if n[1] }} {{ {n[1]: 2} }}",
       "True False 123456789012345678901234567890 y {123456789012345678901234567890: 2}"},
      {"{{ s }} {{ f }}", "a\uFFFD [2.5, 100000.0, -0.0]"},
  };
  for (const auto& [source, expected] : cases) {
    const Result<Prompt> prompt = render(source, kHello, kVariables);
    ASSERT_TRUE(prompt.ok()) << source << ": " << prompt.status().message();
    EXPECT_EQ(prompt->text(), expected);
  }
  EXPECT_FALSE(render("{{ n[1] + 1 }}", kHello, kVariables).ok());
}

TEST(ChatTemplate, DefaultsToChatMl) {
  const Result<Template> chat = Template::create(ModelTexts{});
  ASSERT_TRUE(chat.ok());
  EXPECT_TRUE(chat->is_default());
  Request request;
  request.messages = kHello;
  const Result<Prompt> prompt = chat->render(request);
  ASSERT_TRUE(prompt.ok());
  EXPECT_EQ(prompt->text(), "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_TRUE(prompt->add_special);
  EXPECT_EQ(prompt->stop, std::vector<std::string>{"<|im_end|>"});
}

TEST(ChatTemplate, ToolsSelectTheToolTemplate) {
  ModelTexts texts;
  texts.chat_template = "plain";
  texts.tool_template = "tools {{ tools | length }}";
  const Result<Template> chat = Template::create(texts);
  ASSERT_TRUE(chat.ok());
  Request request;
  request.messages = kHello;
  request.allow_missing_text = true;
  EXPECT_EQ(chat->render(request)->text(), "plain");
  request.tools = "[{}]";
  EXPECT_EQ(chat->render(request)->text(), "tools 1");
}

TEST(ChatText, SplitsAndJoinsContent) {
  using jinja::Span, jinja::Text;
  Text text("ab");
  text.append("cd", true);
  text.append("ef", true);
  text.append("g");
  ASSERT_EQ(text.spans().size(), 1u);
  for (size_t begin = 0; begin <= text.size(); ++begin) {
    for (size_t end = begin; end <= text.size(); ++end) {
      Text joined = text.slice(begin, end);
      EXPECT_EQ(joined.view(), text.view().substr(begin, end - begin));
      size_t content = 0;
      for (const Span& span : joined.spans()) content += span.end - span.begin;
      const size_t expected = std::min<size_t>(std::max<size_t>(end, 2), 6) -
                              std::min<size_t>(std::max<size_t>(begin, 2), 6);
      EXPECT_EQ(content, expected);
    }
  }
}

}  // namespace
}  // namespace sluice::chat

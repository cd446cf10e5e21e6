// What clients send, against 70 real chat templates: contents that are null, absent or empty, roles
// that a template may not know, tool calls of every kind, reasoning. Every message's text is in the
// prompt. Where Python's jinja2 (if python3 has it) shows everything as well, the prompt is the
// same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "../paths.h"
#include "chat/template.h"
#include "noon.h"

namespace sluice::chat {
namespace {

using Json = nlohmann::ordered_json;

const std::filesystem::path kFolder =
    std::filesystem::path(sluice::test::shared_dir()) / "fixtures" / "templates";

constexpr const char* kUser = R"({"role":"user","content":"Weather, uu?"})";
constexpr const char* kNext = R"({"role":"user","content":"And there, vv?"})";
constexpr const char* kAnswer = R"({"role":"assistant","content":"Cold, zz."})";
constexpr const char* kTools =
    R"([{"type":"function","function":{"name":"get_weather","description":"Weather.","parameters":)"
    R"({"type":"object","properties":{"city":{"type":"string","description":"City."}},)"
    R"("required":["city"]}}},{"type":"function","function":{"name":"get_time","description":)"
    R"("Time.","parameters":{"type":"object","properties":{"city":{"type":"string",)"
    R"("description":"City."}},"required":["city"]}}}])";
constexpr const char* kOdd =
    R"("{\"city\": \"Osl\\u00f8 \\ud83d\\ude00\", \"n\": 1234567890123456789, )"
    R"(\"big\": 123456789012345678901234567890, \"x\": 1e400, \"f\": 2.50, )"
    R"(\"deep\": {\"a\": [1, {\"b\": \"ccc\"}], \"t\": true, \"z\": null}}")";

struct Case {
  std::string messages;
  bool tools = false;
  std::vector<std::string> texts;  // in the prompt
  std::string plainly;             // the same for Python: without what needs no template; "": as is
  std::string thought;             // reasoning, which may be omitted
};

// `said`: members of the message with the call.
std::string round(const std::string& said, const std::string& arguments,
                  const std::string& id = "call_abcdefghij0123") {
  return "[" + std::string(kUser) + R"(,{"role":"assistant",)" + said + R"("tool_calls":[{"id":")" +
         id + R"(","type":"function","function":{"name":"get_weather","arguments":)" + arguments +
         R"(}}]},{"role":"tool","tool_call_id":")" + id + R"(","content":"qqcold {\"t\": 7}"}])";
}

std::string conversation(std::initializer_list<std::string> messages) {
  std::string out = "[";
  for (const std::string& message : messages) out += (out.size() > 1 ? "," : "") + message;
  return out + "]";
}

std::map<std::string, Case> cases() {
  const std::string null = R"("content":null,)", oslo = R"("{\"city\": \"Oslo\"}")",
                    parsed = R"({"city": "Oslo"})";
  std::map<std::string, Case> out;
  const auto add_round = [&](const char* name, const std::string& said, const std::string& args,
                             const std::string& object, const char* shown) -> Case& {
    out[name] = {round(said, args), true, {"uu?", "qqcold"}, round(said, object), ""};
    if (*shown != '\0') out[name].texts.emplace_back(shown);
    return out[name];
  };
  out["plain"] = {conversation({kUser}), false, {"uu?"}, "", ""};
  out["plain with tools"] = {conversation({kUser}), true, {"uu?"}, "", ""};
  add_round("null", null, oslo, parsed, "Oslo");
  add_round("absent", "", oslo, parsed, "Oslo");
  add_round("empty", R"("content":"",)", oslo, parsed, "Oslo");
  add_round("text", R"("content":"Let me look, tt.",)", oslo, parsed, "Oslo")
      .texts.emplace_back("tt.");
  add_round("no arguments", null, R"("")", "{}", "");
  add_round("odd arguments", null, kOdd, Json::parse(kOdd).get<std::string>(), "1e400");
  add_round("broken arguments", null, R"("{\"city\": \"Oslo")", R"("{\"city\": \"Oslo")", "Oslo");
  out["short id"] = {round(null, oslo, "abcDEF123"),
                     true,
                     {"uu?", "qqcold", "Oslo"},
                     round(null, parsed, "abcDEF123"),
                     ""};
  out["no tools"] = {round(null, oslo), false, {"uu?", "qqcold", "Oslo"}, round(null, parsed), ""};
  const auto parallel = [&](const std::string& first, const std::string& second) {
    return "[" + std::string(kUser) + R"(,{"role":"assistant","content":null,"tool_calls":[)" +
           R"({"id":"call_aaaaaaaa1","type":"function","function":{"name":"get_weather",)" +
           R"("arguments":)" + first +
           R"(}},{"id":"call_bbbbbbbb2","type":"function","function":)" +
           R"({"name":"get_time","arguments":)" + second +
           R"(}}]},{"role":"tool","tool_call_id":"call_aaaaaaaa1","content":"qqcold"},)" +
           R"({"role":"tool","tool_call_id":"call_bbbbbbbb2","content":"qqnoon"}])";
  };
  out["parallel"] = {parallel(oslo, R"("{\"city\": \"Rome\"}")"),
                     true,
                     {"uu?", "qqcold", "qqnoon", "Oslo", "Rome"},
                     parallel(parsed, R"({"city": "Rome"})"),
                     ""};
  const std::string turns = conversation({kUser, kAnswer, kNext});
  const auto add_answer = [&](const char* name, const std::string& more) {
    const std::string answer = R"({"role":"assistant","content":"Cold, zz.",)" + more + "}";
    out[name] = {conversation({kUser, answer, kNext}), false, {"uu?", "zz.", "vv?"}, turns, ""};
  };
  add_answer("calls null", R"("tool_calls":null)");
  add_answer("calls empty", R"("tool_calls":[])");
  add_answer("nothings", R"("name":null,"refusal":null,"audio":null,"function_call":null,)"
                         R"("tool_calls":null,"reasoning_content":null,"annotations":[])");
  const std::string system = R"({"role":"system","content":"Terse, ss."})",
                    developer = R"({"role":"developer","content":"No lists, dd."})";
  out["system"] = {conversation({system, kUser}), false, {"uu?", "ss."}, "", ""};
  out["developer"] = {conversation({developer, kUser}), false, {"uu?", "dd."}, "", ""};
  out["system and developer"] = {
      conversation({system, developer, kUser}), false, {"uu?", "ss.", "dd."}, "", ""};
  out["later system"] = {
      conversation({kUser, kAnswer, system, kNext}), false, {"uu?", "zz.", "ss.", "vv?"}, "", ""};
  out["parts"] = {conversation({R"({"role":"user","content":[{"type":"text","text":"Weather,"},)"
                                R"({"type":"text","text":" uu?"}]})",
                                R"({"role":"assistant","content":[{"type":"text","text":)"
                                R"("Cold, zz."}]})",
                                kNext}),
                  false,
                  {"uu?", "zz.", "vv?"},
                  turns,
                  ""};
  out["answer of null"] = {conversation({kUser, R"({"role":"assistant","content":null})", kNext}),
                           false,
                           {"uu?", "vv?"},
                           "",
                           ""};
  out["functions"] = {"[" + std::string(kUser) + R"(,{"role":"assistant","content":null,)" +
                          R"("function_call":{"name":"get_weather","arguments":)" + oslo + "}}," +
                          R"({"role":"function","name":"get_weather","content":"qqcold"}])",
                      true,
                      {"uu?", "Oslo", "qqcold"},
                      "-",
                      ""};
  out["unknown role"] = {
      conversation({kUser, kAnswer, R"({"role":"critic","content":"Bad, cc."})", kNext}),
      false,
      {"uu?", "zz.", "cc.", "vv?"},
      "",
      ""};
  for (const std::string name : {"reasoning_content", "reasoning", "thinking"}) {
    const std::string said = null + "\"" + name + "\":\"Hm, rr.\",";
    add_round(name.c_str(), said, oslo, parsed, "Oslo").thought = "rr.";
  }
  add_round("reasoning and text", R"("content":"See, tt.","reasoning_content":"Hm, rr.",)", oslo,
            parsed, "Oslo")
      .thought = "rr.";
  out["reasoning and text"].texts.emplace_back("tt.");
  return out;
}

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

size_t count(const std::string& text, const std::string& sought) {
  size_t out = 0;
  for (size_t at = text.find(sought); at != std::string::npos; at = text.find(sought, at + 1))
    ++out;
  return out;
}
size_t nothings(const std::string& text) {
  // Command R's results have this.
  return count(text, "None") + count(text, "null") - count(text, "\"is_error\": null");
}
bool shows(const std::string& text, const Case& asked) {
  return std::all_of(asked.texts.begin(), asked.texts.end(),
                     [&](const std::string& each) { return text.find(each) != std::string::npos; });
}

// Python reads 1e400 as infinity.
std::string finite(std::string text) {
  for (const std::string sought : {"Infinity", "inf"}) {
    for (size_t at = text.find(sought); at != std::string::npos; at = text.find(sought, at + 1)) {
      const bool longer = std::isalpha(static_cast<unsigned char>(text[at + sought.size()])) != 0;
      const bool word = at > 0 && std::isalpha(static_cast<unsigned char>(text[at - 1])) != 0;
      if (!longer && !word) text.replace(at, sought.size(), "1e400");
    }
  }
  return text;
}

class ChatMatrix : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kFolder)) GTEST_SKIP() << "no shared fixtures";
    for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
      if (entry.path().extension() != ".jinja") continue;
      ModelTexts texts;
      texts.bos = "<BOS>";
      texts.eos = "<EOS>";
      Result<Template> chat = Template::create(texts, read(entry.path()));
      ASSERT_TRUE(chat.ok()) << entry.path();
      templates_.emplace(entry.path().filename().string(), std::move(*chat));
    }
    ASSERT_EQ(templates_.size(), 70u);
  }

  static Result<Prompt> ask(const Template& chat, const Case& asked) {
    Request request;
    request.messages = asked.messages;
    if (asked.tools) request.tools = kTools;
    request.now = test::noon();
    return chat.render(request);
  }

  std::map<std::string, Template> templates_;
};

TEST_F(ChatMatrix, ShowsEveryMessage) {
  const std::map<std::string, Case> all = cases();
  size_t renders = 0;
  for (const auto& [name, chat] : templates_) {
    for (const auto& [what, asked] : all) {
      SCOPED_TRACE(name + ": " + what);
      const Result<Prompt> plain = ask(chat, all.at(asked.tools ? "plain with tools" : "plain"));
      const Result<Prompt> prompt = ask(chat, asked);
      if (!plain.ok()) continue;  // it needs tools, or variables of its own
      ++renders;
      const bool may_fail =
          what == "unknown role" || (what == "answer of null" && name.find("Ministral") == 10);
      if (!prompt.ok()) {
        EXPECT_TRUE(may_fail) << prompt.status().message();
        EXPECT_EQ(prompt.status().code(), Code::kChatTemplate);
        continue;
      }
      const std::string text = prompt->text();
      EXPECT_TRUE(shows(text, asked)) << text;
      const bool odd = what == "odd arguments";  // they have a null
      EXPECT_LE(nothings(text), nothings(plain->text()) + (odd ? 1 : 0)) << text;
    }
  }
  EXPECT_GE(renders, 1700u);
}

// Where jinja2 omits nothing, it is the reference.
TEST_F(ChatMatrix, IsJinja2sPromptWhereThatIsWhole) {
  if (std::system("python3 -c 'import jinja2' 2>/dev/null") != 0) {
    GTEST_SKIP() << "python3 has no jinja2";
  }
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / ("matrix-" + std::to_string(::rand()));
  std::filesystem::create_directories(folder);
  struct Asked {
    const std::string* name;
    const Template* chat;
    const std::string* what;
    const Case* asked;
  };
  const std::map<std::string, Case> all = cases();
  std::vector<Asked> asked;
  std::ofstream requests(folder / "requests");
  for (const auto& [name, chat] : templates_) {
    for (const auto& [what, each] : all) {
      if (each.plainly == "-") continue;
      asked.push_back({&name, &chat, &what, &each});
      requests << R"({"path":)" << Json((kFolder / name).string()) << R"(,"messages":)"
               << (each.plainly.empty() ? each.messages : each.plainly) << R"(,"tools":)"
               << (each.tools ? kTools : "null") << "}\n";
    }
  }
  requests.close();
  const std::string command =
      "python3 '" + test::source_dir() + "/tests/reference/render_templates.py' < '" +
      (folder / "requests").string() + "' > '" + (folder / "prompts").string() + "'";
  ASSERT_EQ(std::system(command.c_str()), 0);
  std::ifstream prompts(folder / "prompts");
  size_t same = 0;
  for (const Asked& each : asked) {
    SCOPED_TRACE(*each.name + ": " + *each.what);
    std::string line;
    ASSERT_TRUE(std::getline(prompts, line));
    const Json answer = Json::parse(line);
    const Result<Prompt> prompt = ask(*each.chat, *each.asked);
    if (!answer.contains("text") || !prompt.ok()) continue;
    const std::string expected = finite(answer["text"]), text = finite(prompt->text());
    const std::string& thought = each.asked->thought;
    const bool whole = shows(expected, *each.asked) && nothings(expected) <= nothings(text) &&
                       count(expected, thought) >= count(text, thought);
    if (!whole) continue;
    EXPECT_EQ(text, expected);
    ++same;
  }
  std::filesystem::remove_all(folder);
  EXPECT_GE(same, 1200u);
}

}  // namespace
}  // namespace sluice::chat

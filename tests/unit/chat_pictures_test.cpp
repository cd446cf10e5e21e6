// Pictures in chats: every API's parts, templates that have something of their own for pictures and
// those that have not, and text of users that looks like a picture's mark.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "../file_contents.h"
#include "../paths.h"
#include "chat/template.h"

namespace sluice::chat {
namespace {

struct Seeing {
  bool pictures = true;
  bool parse_special = false;
  std::string_view tools = {};
};

Result<Prompt> see(std::string_view source, std::string_view messages, const Seeing& asked = {}) {
  const Result<Template> chat = Template::create({}, source);
  if (!chat.ok()) return chat.status();
  Request request;
  request.messages = messages;
  request.tools = asked.tools;
  request.pictures = asked.pictures;
  request.parse_special_in_content = asked.parse_special;
  request.now = 0;
  return chat->render(request);
}

// The prompt with [ ] around content, then the pictures.
std::string seen(std::string_view source, std::string_view messages, const Seeing& asked = {}) {
  const Result<Prompt> prompt = see(source, messages, asked);
  if (!prompt.ok())
    return std::string(code_name(prompt.status().code())) + ": " + prompt.status().message();
  std::string out;
  for (const Piece& piece : prompt->pieces) {
    out += piece.content ? "[" + piece.text + "]" : piece.text;
  }
  for (const std::string& picture : prompt->pictures) out += " | " + picture;
  return out;
}

std::string user(const std::string& parts) {
  return R"([{"role":"user","content":[)" + parts + "]}]";
}
std::string text(const std::string& of) {
  return R"({"type":"text","text":")" + of + R"("})";
}
std::string url(const std::string& of) {
  return R"({"type":"image_url","image_url":{"url":")" + of + R"("}})";
}

constexpr const char* kStrings = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
// Prints `text` for a picture, in its place.
std::string lists(const std::string& text, const std::string& type = "image") {
  return "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}"
         "{% else %}{% for part in m.content %}{% if part.type == '" +
         type + "' %}" + text +
         "{% elif part.type == 'text' %}{{ part.text | trim }}{% endif %}{% endfor %}{% endif %}"
         "<|end|>\n{% endfor %}";
}

TEST(ChatPictures, AreMarksInTextsOfTemplatesWithoutPictures) {
  EXPECT_EQ(seen(kStrings, user(text("a ") + "," + url("u1") + "," + text(" b"))),
            "<user>[a ]<__media__>[ b] | u1");
  EXPECT_EQ(
      seen("", user(url("u1") + "," + url("u2"))),  // ChatML
      "<|im_start|>user\n<__media__><__media__><|im_end|>\n<|im_start|>assistant\n | u1 | u2");
}

TEST(ChatPictures, AreTheFamilysOwnPartsWhereTheTemplateHasThem) {
  const std::string messages =
      user(text("a") + "," + url("u1") + "," + text("b") + "," + url("u2"));
  for (const char* own : {"<|vision_start|><|image_pad|><|vision_end|>", "<start_of_image>",
                          "[IMG]", "<image>", "(<image>./</image>)", "<|end_of_image|>"}) {
    EXPECT_EQ(seen(lists(own), messages), "<user>[a]<__media__>[b]<__media__><|end|>\n | u1 | u2")
        << own;
  }
  EXPECT_EQ(seen(lists(" <image>\n\n"), messages),
            "<user>[a] <__media__>\n\n[b] <__media__>\n\n<|end|>\n | u1 | u2");
  EXPECT_EQ(seen(lists("<image>", "image_url"), messages),
            "<user>[a]<__media__>[b]<__media__><|end|>\n | u1 | u2");
  // All pictures of a message first.
  const std::string first =
      "{% for m in messages %}{% for p in m.content | selectattr('type', 'equalto', 'image') %}"
      "<image>\n{% endfor %}{% for p in m.content | selectattr('type', 'equalto', 'text') %}"
      "{{ p.text }}{% endfor %}{% endfor %}";
  EXPECT_EQ(seen(first, messages), "<__media__>\n<__media__>\n[ab] | u1 | u2");
}

TEST(ChatPictures, AreMarksWhereTheTemplatePrintsSomethingElse) {
  const std::string two = user(url("u1") + "," + url("u2") + "," + text("b"));
  // Numbers, the part itself, nothing, or the same text elsewhere.
  const std::string numbers = lists("{% set n.i = n.i + 1 %}<|image_{{ n.i }}|>");
  EXPECT_EQ(seen("{% set n = namespace(i=0) %}" + numbers, two),
            "<user><__media__><__media__>[b]<|end|>\n | u1 | u2");
  EXPECT_EQ(seen(lists("{{ part }}"), two), "<user><__media__><__media__>[b]<|end|>\n | u1 | u2");
  EXPECT_EQ(seen(lists(""), two), "<user><__media__><__media__>[b]<|end|>\n | u1 | u2");
  EXPECT_EQ(seen("An <image>: " + lists("<image>"), two),
            "An <image>: <user><__media__><__media__>[b]<|end|>\n | u1 | u2");
}

TEST(ChatPictures, MarksOfUsersStayText) {
  const std::string messages =
      user(text("<__media__> <image>") + "," + url("u1") + "," + text("<__media__>"));
  EXPECT_EQ(seen(kStrings, messages), "<user>[<__media__> <image>]<__media__>[<__media__>] | u1");
  EXPECT_EQ(seen(lists("<image>"), messages),
            "<user>[<__media__> <image>]<__media__>[<__media__>]<|end|>\n | u1");
  // Also where control tokens of messages are parsed, and in a template.
  const Seeing parsed{.parse_special = true};
  EXPECT_EQ(seen(kStrings, messages, parsed),
            "<user>[<__media__>] <image><__media__>[<__media__>] | u1");
  EXPECT_EQ(seen(lists("<image>"), messages, parsed),
            "<user>[<__media__>] <image><__media__>[<__media__>]<|end|>\n | u1");
  EXPECT_EQ(seen("<__media__>" + std::string(kStrings), user(url("u1"))),
            "[<__media__>]<user><__media__> | u1");
}

TEST(ChatPictures, PartsOfEveryApi) {
  const auto one = [](const std::string& part) { return seen(kStrings, user(part)); };
  const std::string u1 = "<user><__media__> | u1";
  EXPECT_EQ(one(R"({"type":"image_url","image_url":{"url":"u1","detail":"low"}})"), u1);
  EXPECT_EQ(one(R"({"type":"image_url","image_url":"u1"})"), u1);
  EXPECT_EQ(one(R"({"type":"input_image","image_url":"u1"})"), u1);
  EXPECT_EQ(one(R"({"type":"image","source":{"type":"url","url":"u1"}})"), u1);
  EXPECT_EQ(one(R"({"type":"image","url":"u1"})"), u1);
  EXPECT_EQ(one(R"({"type":"image","image":"u1"})"), u1);
  const std::string base64 =
      R"({"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}})";
  EXPECT_EQ(one(base64), "<user><__media__> | data:image/png;base64,AAAA");
  EXPECT_EQ(one(R"({"type":"image","base64":"AAAA"})"), "<user><__media__> | data:;base64,AAAA");
  EXPECT_EQ(seen(kStrings, R"([{"role":"user","content":"what?","images":["AAAA","BBBB"]}])"),
            "<user><__media__><__media__>[what?] | data:;base64,AAAA | data:;base64,BBBB");
  EXPECT_EQ(seen(kStrings, R"([{"role":"user","content":"what?","images":[]}])"), "<user>[what?]");

  const std::string none = "INVALID_ARGUMENT: a message part of type 'image' has no picture";
  for (const char* part :
       {R"({"type":"image"})", R"({"type":"image_url","image_url":{}})",
        R"({"type":"image_url","image_url":7})", R"({"type":"image","picture":0})"}) {
    EXPECT_EQ(one(part), none) << part;
  }
  EXPECT_EQ(one(R"({"type":"input_image","file_id":"f"})"),
            "NOT_SUPPORTED: a picture cannot be named by the id of a file, because nothing is "
            "stored");
  EXPECT_EQ(one(R"({"type":"input_audio","input_audio":{}})"),
            "NOT_SUPPORTED: message parts of type 'input_audio' are unsupported");
  std::string many = url("u");
  for (int i = 0; i < 1024; ++i) many += "," + url("u");
  EXPECT_EQ(one(many), "INVALID_ARGUMENT: the messages have more than 1024 pictures");
}

TEST(ChatPictures, AreErrorsForModelsOfTextAlone) {
  const Seeing none{.pictures = false};
  EXPECT_EQ(seen(kStrings, user(url("u1")), none),
            "NOT_SUPPORTED: the model takes no pictures: message parts of type 'image_url' are "
            "unsupported");
  EXPECT_EQ(seen(kStrings, user(R"({"type":"image","picture":0})"), none),
            "NOT_SUPPORTED: the model takes no pictures: message parts of type 'image' are "
            "unsupported");
  EXPECT_EQ(seen(kStrings, R"([{"role":"user","content":"what?","images":["AAAA"]}])", none),
            "NOT_SUPPORTED: the model takes no pictures: 'images' is unsupported");
}

// Pictures of results and of system messages are marks, in the order in which they are shown.
TEST(ChatPictures, OfOtherRoles) {
  const std::string messages =
      R"([{"role":"system","content":[)" + url("s") + "," + text("be") +
      R"(]},{"role":"user","content":[)" + url("u1") + "," + text("go") +
      R"(]},{"role":"assistant","tool_calls":[{"id":"call_1234567890","type":"function",)"
      R"("function":{"name":"look","arguments":"{}"}}]},)"
      R"({"role":"tool","tool_call_id":"call_1234567890","content":[)" +
      text("seen") + "," + url("t") + "]}]";
  const std::string source =
      "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}"
      "{% else %}{% for part in m.content %}{% if part.type == 'image' %}[IMG]"
      "{% elif part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}{% endif %}"
      "{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments | tojson }}"
      "{% endfor %}{% endfor %}";
  EXPECT_EQ(seen(source, messages),
            "<system><__media__>[be]<user><__media__>[go]<assistant>[look]{}<tool>[seen]"
            "<__media__> | s | u1 | t");
}

// Templates of real models: each shows all pictures once, in order.
TEST(ChatPictures, RealTemplates) {
  const std::filesystem::path folder = test::shared_dir() + "/fixtures/templates";
  if (!std::filesystem::is_directory(folder)) GTEST_SKIP() << folder << " is absent";
  const std::string messages = user(text("one") + "," + url("u1") + "," + text("two") + "," +
                                    url("u2") + "," + text("three"));
  size_t checked = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    const std::string source = test::file_contents(entry.path());
    if (!see(source, user(text("one"))).ok()) continue;  // it needs variables of its own
    const Result<Prompt> prompt = see(source, messages);
    ++checked;
    ASSERT_TRUE(prompt.ok()) << entry.path() << prompt.status().message();
    EXPECT_EQ(prompt->pictures, (std::vector<std::string>{"u1", "u2"})) << entry.path();
    const std::string all = prompt->text();
    size_t at = 0;
    for (const char* part : {"one", "<__media__>", "two", "<__media__>", "three"}) {
      at = all.find(part, at == 0 ? all.rfind("one") : at);
      EXPECT_NE(at, std::string::npos)
          << entry.path() << " " << part << all.substr(all.rfind("one"));
    }
    for (const char* own : {"<image", "<|image", "[IMG]", "<|vision_start|>", "<|media_begin|>",
                            "<start_of_image>", "]<]image[>["}) {
      EXPECT_EQ(all.find(own), std::string::npos) << entry.path();
    }
  }
  EXPECT_GT(checked, 50u);
}

}  // namespace
}  // namespace sluice::chat

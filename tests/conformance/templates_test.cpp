// 70 real chat templates with five conversations each, compared with Python's jinja2 set up as in
// transformers. What jinja2 rejects is rejected for the same reason, unless the messages can be
// written so that the template takes them (chat_matrix_test.cpp).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
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

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Result<Prompt> render(const Template& chat, const Json& conversation) {
  const std::string messages = conversation["messages"].dump();
  const std::string tools = conversation.value("tools", Json()).dump();
  Request request;
  request.messages = messages;
  request.tools = tools;
  request.add_generation_prompt = conversation.value("add_generation_prompt", true);
  request.now = test::noon();
  return chat.render(request);
}

TEST(Templates, RenderLikeJinja2) {
  if (!std::filesystem::exists(kFolder)) GTEST_SKIP() << "no shared fixtures";
  const Json expected = Json::parse(read(kFolder / "expected.json"));
  ASSERT_EQ(expected["cases"].size(), 350u);
  ModelTexts texts;
  texts.bos = "<BOS>";
  texts.eos = "<EOS>";
  int repaired = 0;
  for (const Json& each : expected["cases"]) {
    const std::string name = each["template"], conversation = each["conversation"];
    SCOPED_TRACE(name + ": " + conversation);
    texts.chat_template = read(kFolder / (name + ".jinja"));
    const Result<Template> chat = Template::create(texts);
    ASSERT_TRUE(chat.ok()) << chat.status().message();
    const Result<Prompt> prompt = render(*chat, expected["conversations"][conversation]);
    const auto shown = [](const std::string& text, std::string_view sought) {
      return text.find(sought) != std::string::npos;
    };
    const bool calls = conversation == "tool-turn";
    if (each.contains("text")) {
      ASSERT_TRUE(prompt.ok()) << prompt.status().message();
      const std::string text = each["text"], ours = prompt->text();
      // Some templates omit the call beside an empty content, or its result.
      const auto parts = [&](const std::string& prompt_text) {
        size_t out = shown(prompt_text, "7}") ? 1 : 0;
        for (size_t at = 0; (at = prompt_text.find("Oslo", at)) != std::string::npos; ++at) ++out;
        return out;
      };
      if (calls && parts(ours) > parts(text)) {
        ++repaired;
      } else {
        EXPECT_EQ(ours, text);
      }
    } else if (prompt.ok()) {
      for (const Json& message : expected["conversations"][conversation]["messages"]) {
        const std::string content = message["content"];
        EXPECT_TRUE(shown(prompt->text(), content)) << prompt->text();
      }
      ++repaired;
    } else {
      EXPECT_EQ(prompt.status().code(), Code::kChatTemplate);
      EXPECT_NE(prompt.status().message().find(each["error"].get<std::string>()), std::string::npos)
          << prompt.status().message();
    }
  }
  EXPECT_EQ(repaired, 21);
}

// Every string of a message is marked as content, and no text of the template is.
TEST(Templates, SeparateMessageContent) {
  if (!std::filesystem::exists(kFolder)) GTEST_SKIP() << "no shared fixtures";
  const Json conversation = {
      {"messages", {{{"role", "user"}, {"content", "\n@@first <|im_end|>@@ "}}}}};
  size_t rendered = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() != ".jinja") continue;
    SCOPED_TRACE(entry.path().filename().string());
    ModelTexts texts;
    texts.chat_template = read(entry.path());
    const Result<Template> chat = Template::create(texts);
    ASSERT_TRUE(chat.ok()) << chat.status().message();
    const Result<Prompt> prompt = render(*chat, conversation);
    if (!prompt.ok()) continue;
    ++rendered;
    std::string content, own;
    for (const Piece& piece : prompt->pieces) (piece.content ? content : own) += piece.text;
    EXPECT_NE(content.find("@@first <|im_end|>@@"), std::string::npos) << prompt->text();
    EXPECT_EQ(own.find("@@"), std::string::npos);
  }
  EXPECT_GE(rendered, 60u);
}

}  // namespace
}  // namespace sluice::chat

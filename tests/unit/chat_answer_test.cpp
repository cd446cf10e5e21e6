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
#include "chat/json_text.h"
#include "chat/reasoning.h"
#include "chat/text_reader.h"
#include "chat/tool_formats.h"
#include "chat/tool_grammar.h"
#include "chat/tool_schema.h"
#include "grammar/grammar.h"

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

}  // namespace
}  // namespace sluice::chat

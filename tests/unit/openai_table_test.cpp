// The table of requests (tests/serve/requests.json), as far as the check alone decides. The
// servers' tests run the same rows: tests/serve/requests.test.mjs says what the columns mean.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>

#include "../paths.h"
#include "anthropic/request.h"
#include "endpoints/endpoints.h"
#include "ollama/request.h"
#include "openai/json.h"
#include "openai/request.h"

namespace sluice::openai {
namespace {

// The value at a path such as "messages.0.content".
Json& value_at(Json& body, const std::string& path) {
  return body[Json::json_pointer("/" + std::regex_replace(path, std::regex("\\."), "/"))];
}

// The body of a row.
std::string body_of(const Json& row, const Json& target, bool stream) {
  if (row.contains("text")) return row["text"];
  Json body = target["body"];
  const auto column = [&](const char* name) { return row.value(name, Json::object()); };
  const Json without = row.value("without", Json::array());
  const Json with = column("with"), fill = column("fill"), longer = column("long"),
             nest = column("nest");
  for (const Json& key : without) body.erase(key.get<std::string>());
  body.update(with);
  for (const auto& [path, made] : fill.items()) {
    value_at(body, path) = Json(made[0].get<size_t>(), made[1]);
  }
  for (const auto& [path, made] : longer.items()) {
    std::string text;
    for (int i = 0; i < made[0]; ++i) text += made[1].get<std::string>();
    value_at(body, path) = text;
  }
  for (const auto& [path, depth] : nest.items()) {
    Json nested;
    for (int i = 0; i < depth; ++i) nested = Json::array_t{nested};
    value_at(body, path) = nested;
  }
  if (stream) body["stream"] = true;
  std::string text = body.dump();
  if (row.contains("raw"))
    text.replace(text.size() - 1, 1, "," + row["raw"].get<std::string>() + "}");
  return text;
}

// `path`: of the target.
Problem check(const std::string& target, const std::string& path, const std::string& body) {
  GenerateRequest request;
  EmbeddingRequest embedding;
  RerankRequest rerank;
  TokenizeRequest text;
  std::vector<Token> tokens;
  if (target == "count") return anthropic::read_count(body, &request);
  if (const auto* endpoint = endpoints::find(path)) return endpoint->read(body, &request);
  if (const auto* endpoint = endpoints::find_embedding(path)) {
    return endpoint->read(body, &embedding);
  }
  if (target == "ollama-show") return ollama::read_show(body);
  if (target == "apply-template") return read_apply_template(body, &request);
  if (target == "rerank") return read_rerank(body, &rerank);
  if (target == "tokenize") return read_tokenize(body, &text);
  if (target == "detokenize") return read_detokenize(body, &tokens);
  return ApiError{.message = "no such target: " + target};
}

TEST(OpenaiTable, EveryRowThatTheCheckDecides) {
  std::ifstream file(sluice::test::source_dir() + "/tests/serve/requests.json");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const Json table = Json::parse(text);
  int good = 0, wrong = 0;
  for (const Json& row : table["rows"]) {
    const std::string target = row["to"], by = row.value("by", "check");
    if (target.find(' ') != std::string::npos || target == "reranker-embedding") continue;
    const bool fails = row["status"] != 200 && by == "check";
    const bool streams =
        target == "chat" || target == "completion" || target == "responses" || target == "messages";
    for (const bool stream : {false, true}) {
      if (stream && (!streams || !fails || row.value("with", Json()).contains("stream"))) continue;
      const std::string body = body_of(row, table["targets"][target], stream);
      const std::string path = table["targets"][target]["request"].get<std::string>();
      const Problem problem = check(target, path.substr(path.find(' ') + 1), body);
      const std::string name = row["name"].get<std::string>() + (stream ? ", streamed" : "");
      ++(fails ? wrong : good);
      ASSERT_EQ(problem.has_value(), fails) << name << (problem ? ": " + problem->message : "");
      if (!fails) continue;
      EXPECT_EQ(problem->status, row["status"]) << name;
      EXPECT_EQ(problem->code, row.value("code", "INVALID_ARGUMENT")) << name;
      EXPECT_EQ(problem->param, row.value("param", "")) << name << ": " << problem->message;
      EXPECT_GT(problem->message.size(), 10u) << name;
    }
  }
  EXPECT_GT(good, 80);
  EXPECT_GT(wrong, 400);
}

}  // namespace
}  // namespace sluice::openai

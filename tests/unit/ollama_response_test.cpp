// Responses of Ollama's API: documents, and the lines of streams.
#include <gtest/gtest.h>

#include "chat_plan.h"
#include "ollama/models.h"
#include "ollama/response.h"
#include "openai/json.h"

namespace sluice::ollama {
namespace {

using openai::GenerateRequest;
using openai::Json;

std::string token_bytes(session::Token token) {
  return token == 5 ? "\xc3" : "x";
}

generate::Counts counted() {
  generate::Counts out;
  out.prompt = 4;
  out.generated = 3;
  out.prompt_ms = 6;
  out.generate_ms = 1.5;
  return out;
}

void push(openai::Responder& responder, const std::string& text) {
  generate::Piece piece;
  piece.token = 5;
  piece.text = text;
  piece.bytes = "\xc3";
  piece.logprob = -0.5f;
  piece.top = {{5, -0.5f}, {6, -1e30f}};
  responder.push(0, piece, {});
}

std::vector<Json> lines(const std::string& text) {
  std::vector<Json> out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    EXPECT_NE(end, std::string::npos);
    out.push_back(*openai::parse_body(text.substr(at, end - at)));
    at = end + 1;
  }
  return out;
}

constexpr const char* kCall =
    "<think>why</think>Well.<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\":\n "
    "1234567890123456789012, \"t\": \"a b\"}}\n</tool_call>";

GenerateRequest tool_chat(bool stream) {
  GenerateRequest request;
  request.chat = true;
  request.stream = stream;
  request.tools = R"([{"type":"function","function":{"name":"f"}}])";
  return request;
}

TEST(OllamaResponse, AChatIsOneDocument) {
  const GenerateRequest request = tool_chat(false);
  const chat::AnswerPlan plan = openai::chat_plan(request);
  Response response(request, token_bytes, "m", &plan, /*chat=*/true);
  push(response, kCall);
  response.end(0, generate::Finish::kStop, counted());
  const std::string text = response.document();
  const Json out = *openai::parse_body(text);
  EXPECT_EQ(out["model"], "m");
  EXPECT_EQ(out["message"]["role"], "assistant");
  EXPECT_EQ(out["message"]["content"], "Well.");
  EXPECT_EQ(out["message"]["thinking"], "why");
  EXPECT_EQ(out["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(out["message"]["tool_calls"][0]["function"]["name"], "f");
  EXPECT_NE(text.find(R"("arguments":{"n":1234567890123456789012,"t":"a b"}})"), std::string::npos)
      << text;
  EXPECT_EQ(out["done"], true);
  EXPECT_EQ(out["done_reason"], "stop");
  EXPECT_EQ(out["prompt_eval_count"], 4);
  EXPECT_EQ(out["prompt_eval_duration"], 6'000'000);
  EXPECT_EQ(out["eval_count"], 3);
  EXPECT_EQ(out["eval_duration"], 1'500'000);
  EXPECT_EQ(out["total_duration"], 7'500'000);
  EXPECT_EQ(out["load_duration"], 0);
  EXPECT_EQ(response.usage().prompt, 4);
  EXPECT_STREQ(response.finish(), "stop");
}

TEST(OllamaResponse, AStreamHasTheSameInLines) {
  const GenerateRequest request = tool_chat(true);
  const chat::AnswerPlan plan = openai::chat_plan(request);
  Response response(request, token_bytes, "m", &plan, /*chat=*/true);
  EXPECT_EQ(response.take_frames(), "");
  std::string text;
  const std::string whole = kCall;
  for (size_t at = 0; at < whole.size(); at += 7) {
    push(response, whole.substr(at, 7));
    text += response.take_frames();
  }
  response.end(0, generate::Finish::kLength, counted());
  text += response.take_frames() + response.last_frames();
  std::string content, thinking;
  Json calls = Json::array();
  const std::vector<Json> all = lines(text);
  for (const Json& line : all) {
    EXPECT_EQ(line["done"], &line == &all.back());
    content += line["message"]["content"];
    thinking += line["message"].value("thinking", "");
    for (const Json& call : line["message"].value("tool_calls", Json::array())) {
      calls.push_back(call);
    }
  }
  EXPECT_EQ(content, "Well.");
  EXPECT_EQ(thinking, "why");
  EXPECT_EQ(calls.size(), 1u);
  EXPECT_EQ(all.back()["done_reason"], "length");
  EXPECT_EQ(all.back()["eval_count"], 3);
  EXPECT_EQ(lines(response.error_frames({.message = "no \"x\""})).at(0)["error"], "no \"x\"");
}

TEST(OllamaResponse, TextAndLogprobs) {
  GenerateRequest request;
  request.prompts.resize(1);
  request.options.logprobs = 2;
  Response response(request, token_bytes, "m", nullptr, /*chat=*/false);
  push(response, "Once");
  push(response, " upon");
  response.end(0, generate::Finish::kStop, counted());
  const Json out = *openai::parse_body(response.document());
  EXPECT_EQ(out["response"], "Once upon");
  EXPECT_EQ(out["logprobs"].size(), 2u);
  EXPECT_EQ(out["logprobs"][0]["token"], "\xEF\xBF\xBD");
  EXPECT_EQ(out["logprobs"][0]["bytes"], Json::array({0xc3}));
  EXPECT_EQ(out["logprobs"][0]["logprob"], -0.5);
  EXPECT_EQ(out["logprobs"][0]["top_logprobs"][1]["logprob"], -9999.0);
  EXPECT_FALSE(out.contains("message"));
}

TEST(OllamaResponse, LoadingGeneratesNothing) {
  const GenerateRequest request;
  const Json text = *openai::parse_body(Response(request, {}, "m", nullptr, false).document());
  EXPECT_EQ(text["response"], "");
  EXPECT_EQ(text["done"], true);
  EXPECT_EQ(text["done_reason"], "load");
  const Json chat = *openai::parse_body(Response(request, {}, "m", nullptr, true).document());
  EXPECT_EQ(chat["message"]["content"], "");
}

TEST(OllamaResponse, Vectors) {
  const float values[] = {0.5f, 1, -2, 0.1f};
  const Json many = *openai::parse_body(embed_body({values, 2, 7}, "m"));
  EXPECT_EQ(many["embeddings"].size(), 2u);
  EXPECT_EQ(many["embeddings"][1][0], -2.0);
  EXPECT_EQ(many["prompt_eval_count"], 7);
  const std::string one = embeddings_body({std::span(values, 2), 2, 3});
  EXPECT_EQ(one, R"({"embedding":[0.5,1.0]})");
}

TEST(OllamaResponse, Times) {
  EXPECT_EQ(time_text(0), "1970-01-01T00:00:00Z");
  EXPECT_EQ(time_text(951782399), "2000-02-28T23:59:59Z");
  EXPECT_EQ(time_text(951782400), "2000-02-29T00:00:00Z");
  EXPECT_EQ(time_text(1735689599), "2024-12-31T23:59:59Z");
  EXPECT_EQ(time_text(4107542400), "2100-03-01T00:00:00Z");
}

TEST(OllamaModels, TheServedModel) {
  ModelFacts model;
  model.name = "Tales \"q\"";
  model.architecture = "llama";
  model.quantization = "Q8_0";
  model.parameters = 7'615'616'512;
  model.bytes = 1000;
  model.n_ctx = 512;
  model.n_ctx_train = 4096;
  model.completes = model.tools = true;
  const Json tags = *openai::parse_body(tags_body(model));
  const Json& one = tags["models"][0];
  EXPECT_EQ(one["name"], "Tales \"q\"");
  EXPECT_EQ(one["size"], 1000);
  EXPECT_EQ(one["digest"].get<std::string>().size(), 64u);
  EXPECT_EQ(one["details"]["parameter_size"], "7.6B");
  EXPECT_EQ(one["details"]["quantization_level"], "Q8_0");
  const Json running = *openai::parse_body(running_body(model));
  EXPECT_EQ(running["models"][0]["context_length"], 512);
  EXPECT_EQ(running["models"][0]["digest"], one["digest"]);
  const Json shown = *openai::parse_body(show_body(model));
  EXPECT_EQ(shown["capabilities"], Json::array({"completion", "tools"}));
  EXPECT_EQ(shown["model_info"]["llama.context_length"], 4096);
  EXPECT_FALSE(shown["model_info"].contains("llama.block_count"));
  EXPECT_EQ(shown["parameters"], "num_ctx 512");
  model.parameters = 280'000;
  EXPECT_NE(tags_body(model).find("\"280.0K\""), std::string::npos);
  EXPECT_TRUE((*openai::parse_body(version_body()))["version"].is_string());
}

}  // namespace
}  // namespace sluice::ollama

// Anthropic's Messages API: content blocks as messages, its document, events and errors.
#include <gtest/gtest.h>

#include "anthropic/request.h"
#include "anthropic/responder.h"
#include "chat_plan.h"
#include "endpoints/endpoints.h"
#include "openai/json.h"

namespace sluice::anthropic {
namespace {

using openai::GenerateRequest;
using openai::Json;
using openai::parse_body;
using openai::Problem;
using openai::Token;
using openai::ToolChoice;

std::string error_of(const std::string& members) {
  GenerateRequest request;
  const Problem problem = read_message(
      R"({"max_tokens":5,"messages":[{"role":"user","content":"Hi"}],)" + members + "}", &request);
  return problem ? problem->param + ": " + problem->message : "none";
}

TEST(AnthropicRequest, BlocksBecomeMessages) {
  GenerateRequest request;
  const Problem problem = read_message(R"({"max_tokens":5,
    "system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}],"messages":[
    {"role":"user","content":"Hi"},
    {"role":"assistant","content":[
      {"type":"thinking","thinking":"hm","signature":"s"},
      {"type":"redacted_thinking","data":"x"},
      {"type":"text","text":"I look."},
      {"type":"tool_use","id":"c1","name":"f","input":{"n": 12345678901234567890123}},
      {"type":"tool_use","id":"c2","name":"g","input":{}}]},
    {"role":"user","content":[
      {"type":"tool_result","tool_use_id":"c1","content":"1e400"},
      {"type":"tool_result","tool_use_id":"c2"},
      {"type":"text","text":"So?"}]}]})",
                                       &request);
  ASSERT_FALSE(problem) << problem->message;
  EXPECT_TRUE(request.chat && request.add_generation_prompt && !request.continue_final_message);
  EXPECT_EQ(request.messages,
            R"([{"role":"system","content":[{"type":"text","text":"Be brief.",)"
            R"("cache_control":{"type":"ephemeral"}}]},{"role":"user","content":"Hi"},)"
            R"({"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},)"
            R"({"type":"text","text":"I look."}],"tool_calls":[)"
            R"({"id":"c1","type":"function","function":{"name":"f",)"
            R"("arguments":"{\"n\": 12345678901234567890123}"}},)"
            R"({"id":"c2","type":"function","function":{"name":"g","arguments":"{}"}}]},)"
            R"({"role":"tool","tool_call_id":"c1","content":"1e400"},)"
            R"({"role":"tool","tool_call_id":"c2","content":""},)"
            R"({"role":"user","content":[{"type":"text","text":"So?"}]}])");
}

TEST(AnthropicRequest, OptionsHaveTheirOwnNames) {
  GenerateRequest request;
  const Problem problem = read_message(R"({"model":"m","max_tokens":5,"messages":[
    {"role":"user","content":"Hi"},{"role":"assistant","content":"It is"}],
    "stop_sequences":["a","b"],"temperature":0.5,"top_k":3,"top_p":0.5,"stream":true,
    "metadata":{"user_id":"u"},"service_tier":"auto","thinking":{"type":"enabled","budget_tokens":1024},
    "output_config":{"effort":"high","format":{"type":"json_schema","schema":{"const": 1}}},
    "tools":[{"name":"f","description":"d","input_schema":{"type":"object"},
              "cache_control":{"type":"ephemeral"}},{"type":"custom","name":"g"}],
    "tool_choice":{"type":"tool","name":"g","disable_parallel_tool_use":true}})",
                                       &request);
  ASSERT_FALSE(problem) << problem->message;
  EXPECT_TRUE(request.continue_final_message && !request.add_generation_prompt);
  EXPECT_EQ(request.options.max_tokens, 5);
  EXPECT_EQ(request.options.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request.options.sampling.top_k, 3);
  EXPECT_EQ(request.options.constraint->text, R"({"const": 1})");
  EXPECT_EQ(request.variables, R"({"reasoning_effort":"high","enable_thinking":true})");
  EXPECT_EQ(request.tools,
            R"([{"type":"function","function":{"name":"f","description":"d",)"
            R"("parameters":{"type":"object"}}},{"type":"function","function":{"name":"g"}}])");
  EXPECT_EQ(request.tool_choice.mode, ToolChoice::Mode::kRequired);
  EXPECT_EQ(request.tool_choice.names, std::vector<std::string>{"g"});
  EXPECT_FALSE(request.parallel_tool_calls);
}

TEST(AnthropicRequest, OnlyATextIsContinued) {
  for (const auto& [content, continues] :
       {std::pair(R"("It is")", true), std::pair(R"([{"type":"text","text":"It is"}])", true),
        std::pair(R"([{"type":"thinking","thinking":"hm","signature":""}])", false),
        std::pair(
            R"([{"type":"text","text":"a"},{"type":"tool_use","id":"c","name":"f","input":{}}])",
            false)}) {
    GenerateRequest request;
    const std::string body = R"({"max_tokens":1,"messages":[{"role":"user","content":"Hi"},)"
                             R"({"role":"assistant","content":)" +
                             std::string(content) + "}]}";
    ASSERT_FALSE(read_message(body, &request));
    EXPECT_EQ(request.continue_final_message, continues) << content;
  }
}

TEST(AnthropicRequest, WhatIsNotSupportedIsNamed) {
  EXPECT_EQ(error_of(R"("tools":[{"type":"web_search_20250305","name":"web_search"}])"),
            "tools: 'tools[0]': the type 'web_search_20250305' is not supported, only 'custom'.");
  EXPECT_EQ(error_of(R"("tool_choice":{"type":"any"})"),
            "tool_choice: 'tool_choice' requires a call, but 'tools' is empty.");
  EXPECT_EQ(error_of(R"("thinking":{"type":"adaptive"})"), "none");
  GenerateRequest request;
  const std::string body = R"({"messages":[{"role":"user","content":"Hi"}]})";
  EXPECT_EQ(read_message(body, &request)->param, "max_tokens");
  EXPECT_FALSE(read_count(body, &request));
}

class AnthropicResponse : public testing::Test {
 protected:
  void SetUp() override {
    request.chat = true;
    request.tools = R"([{"type":"function","function":{"name":"f"}}])";
    request.options.stop = {"END", "<|end|>"};  // the second one is the template's
    request.n_stop = 1;
  }
  void run(const std::vector<std::string>& texts, const std::string& stop = "",
           generate::Finish finish = generate::Finish::kStop) {
    plan = openai::chat_plan(request);
    responder = std::make_unique<MessageResponder>(request, nullptr, "m", &*plan);
    generate::Counts counts;
    counts.prompt = 4;
    counts.cached = 1;
    for (const std::string& text : texts) {
      ++counts.generated;
      responder->push(0, {.token = 9, .text = text, .bytes = {}, .logprob = 0, .top = {}}, counts);
    }
    responder->set_stop_string(stop);
    responder->end(0, finish, counts);
  }
  [[nodiscard]] Json document() const { return *parse_body(responder->document()); }

  GenerateRequest request;
  std::optional<chat::AnswerPlan> plan;
  std::unique_ptr<MessageResponder> responder;
};

const std::vector<std::string> kOutput = {
    "<think>",
    "w",
    "hy",
    "</think>",
    "I ",
    "\"look\".",
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 1234567890123456789,\n\"x\": "
    "1e400}}\n</tool_call>"};

TEST_F(AnthropicResponse, ADocumentHasBlocks) {
  run(kOutput);
  const std::string text = responder->document();
  const size_t call = text.find(R"({"type":"tool_use")");
  ASSERT_NE(call, std::string::npos);
  EXPECT_NE(text.find(R"("input":{"n":1234567890123456789,"x":1e400}})"), std::string::npos);
  std::string parsed = text;
  parsed.replace(text.find("1e400"), 5, "10000");  // which no parser of numbers takes
  const Json out = *parse_body(parsed);
  EXPECT_EQ(out["type"], "message");
  EXPECT_EQ(out["role"], "assistant");
  EXPECT_EQ(out["model"], "m");
  ASSERT_EQ(out["content"].size(), 3u);
  EXPECT_EQ(out["content"][0]["thinking"], "why");
  EXPECT_GT(out["content"][0]["signature"].get<std::string>().size(), 0u);
  EXPECT_EQ(out["content"][1], (Json{{"type", "text"}, {"text", "I \"look\"."}}));
  EXPECT_EQ(out["content"][2]["name"], "f");
  EXPECT_EQ(out["stop_reason"], "tool_use");
  EXPECT_TRUE(out["stop_sequence"].is_null());
  EXPECT_EQ(out["usage"]["input_tokens"], 3);
  EXPECT_EQ(out["usage"]["cache_read_input_tokens"], 1);
  EXPECT_EQ(out["usage"]["output_tokens"], 7);
}

TEST_F(AnthropicResponse, TheReasonOfTheEndIsKnown) {
  run({"a"});
  EXPECT_EQ(document()["stop_reason"], "end_turn");
  run({"a"}, "END");
  EXPECT_EQ(document()["stop_reason"], "stop_sequence");
  EXPECT_EQ(document()["stop_sequence"], "END");
  run({"a"}, "<|end|>");
  EXPECT_EQ(document()["stop_reason"], "end_turn");
  run({"a"}, "", generate::Finish::kLength);
  EXPECT_EQ(document()["stop_reason"], "max_tokens");
  run({"a"}, "", generate::Finish::kContext);
  EXPECT_EQ(document()["stop_reason"], "model_context_window_exceeded");
}

TEST_F(AnthropicResponse, EventsHaveAnthropicsOrder) {
  request.stream = true;
  run(kOutput);
  const std::string frames = responder->take_frames();
  std::vector<std::string> seen;
  for (size_t at = 0; at < frames.size();) {
    const size_t line = frames.find('\n', at), end = frames.find("\n\n", at);
    ASSERT_EQ(frames.substr(line, 7), "\ndata: ");
    const Json event = *parse_body(frames.substr(line + 7, end - line - 7));
    std::string type = frames.substr(at + 7, line - at - 7);
    EXPECT_EQ(event["type"], type);
    if (event.contains("index")) type += " " + std::to_string(event["index"].get<int>());
    if (event.contains("content_block")) type += " " + event["content_block"].value("type", "");
    if (type.starts_with("content_block_delta")) {
      const Json& delta = event["delta"];
      type = delta["type"];
      if (type == "input_json_delta") {
        EXPECT_NE(delta["partial_json"].get<std::string>().find("1234567890123456789"),
                  std::string::npos);
      }
    }
    if (event.contains("message")) {
      EXPECT_EQ(event["message"]["usage"]["input_tokens"], 3);
      EXPECT_TRUE(event["message"]["stop_reason"].is_null());
    }
    if (type == "message_delta") {
      EXPECT_EQ(event["delta"]["stop_reason"], "tool_use");
      EXPECT_EQ(event["usage"]["output_tokens"], 7);
    }
    if (seen.empty() || seen.back() != type) seen.push_back(type);
    at = end + 2;
  }
  EXPECT_EQ(seen,
            (std::vector<std::string>{
                "message_start", "ping", "content_block_start 0 thinking", "thinking_delta",
                "signature_delta", "content_block_stop 0", "content_block_start 1 text",
                "text_delta", "content_block_stop 1", "content_block_start 2 tool_use",
                "input_json_delta", "content_block_stop 2", "message_delta", "message_stop"}));
}

TEST_F(AnthropicResponse, ErrorsHaveTheirForm) {
  const std::string wanted =
      R"({"type":"error","error":{"type":"rate_limit_error","message":"Later."}})";
  const openai::ApiError error = {.status = 429, .message = "Later."};
  for (const char* path : {"/v1/messages", "/messages", "/v1/messages/count_tokens"}) {
    EXPECT_EQ(endpoints::error_body(path, error), wanted);
  }
  EXPECT_EQ(endpoints::error_body("/v1/chat/completions", error), openai::error_body(error));
  run({});
  EXPECT_EQ(responder->error_frames(error), "event: error\ndata: " + wanted + "\n\n");
}

}  // namespace
}  // namespace sluice::anthropic

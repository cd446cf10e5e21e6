// The Responses API: its items as messages, its document and the order of its events.
#include <gtest/gtest.h>

#include "chat_plan.h"
#include "openai/json.h"
#include "openai/responses.h"

namespace sluice::openai {
namespace {

Problem read(const std::string& body, GenerateRequest* out) {
  return read_responses(body, out);
}

std::string error_of(const std::string& body) {
  GenerateRequest request;
  const Problem problem = read(body, &request);
  return problem ? problem->param + ": " + problem->message : "none";
}

TEST(OpenaiResponsesRequest, ItemsBecomeMessages) {
  GenerateRequest request;
  const Problem problem = read(R"({"instructions":"Be brief.","input":[
    {"role":"user","content":"Hi"},
    {"type":"message","role":"user","content":[{"type":"input_text","text":"What?"}]},
    {"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},
    {"type":"message","role":"assistant","content":[{"type":"output_text","text":"I look."}]},
    {"type":"function_call","call_id":"c1","name":"f","arguments":"{\"n\": 1234567890123456789}"},
    {"type":"function_call","call_id":"c2","name":"g","arguments":"{}"},
    {"type":"function_call_output","call_id":"c1","output":"1e400"},
    {"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"two"}]},
    {"type":"item_reference","id":"rs_2"},
    {"role":"assistant","content":"So."},
    {"role":"assistant","content":"And so."}]})",
                               &request);
  ASSERT_FALSE(problem) << problem->message;
  EXPECT_TRUE(request.chat);
  EXPECT_EQ(request.messages,
            R"([{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"},)"
            R"({"role":"user","content":[{"type":"input_text","text":"What?"}]},)"
            R"({"role":"assistant","content":[{"type":"reasoning","text":"hm"},)"
            R"({"type":"output_text","text":"I look."}],"tool_calls":[)"
            R"({"id":"c1","type":"function","function":{"name":"f",)"
            R"("arguments":"{\"n\": 1234567890123456789}"}},)"
            R"({"id":"c2","type":"function","function":{"name":"g","arguments":"{}"}}]},)"
            R"({"role":"tool","tool_call_id":"c1","content":"1e400"},)"
            R"({"role":"tool","tool_call_id":"c2","content":[{"type":"input_text","text":"two"}]},)"
            R"({"role":"assistant","content":[{"type":"text","text":"So."}]},)"
            R"({"role":"assistant","content":[{"type":"text","text":"And so."}]}])");
  EXPECT_EQ(error_of(R"({"input":"Hi"})"), "none");
}

TEST(OpenaiResponsesRequest, OptionsHaveTheirOwnNames) {
  GenerateRequest request;
  const Problem problem = read(R"({"input":"Hi","max_output_tokens":7,"temperature":0.5,"top_p":0.5,
    "top_k":3,"stop":"x","seed":9,"stream":true,"store":true,"metadata":{"a":"b"},
    "include":["message.output_text.logprobs","reasoning.encrypted_content"],"top_logprobs":2,
    "reasoning":{"effort":"low","summary":"auto"},"truncation":"auto","parallel_tool_calls":false,
    "tools":[{"type":"function","name":"f","description":"d","strict":true,
              "parameters":{"type":"object","properties":{"n":{"const":12345678901234567890}}}},
             {"type":"function","name":"g","parameters":null}],
    "tool_choice":{"type":"allowed_tools","mode":"required",
                   "tools":[{"type":"function","name":"g"}]},
    "text":{"verbosity":"medium","format":{"type":"json_schema","name":"s","strict":true,
            "schema":{"const": 1}}}})",
                               &request);
  ASSERT_FALSE(problem) << problem->message;
  const generate::Options& o = request.options;
  EXPECT_EQ(o.max_tokens, 7);
  EXPECT_EQ(o.sampling.temperature, 0.5f);
  EXPECT_EQ(o.sampling.top_k, 3);
  EXPECT_EQ(o.sampling.seed, 9u);
  EXPECT_EQ(o.stop, std::vector<std::string>{"x"});
  EXPECT_EQ(o.logprobs, 2);
  EXPECT_EQ(o.constraint->text, R"({"const": 1})");
  EXPECT_EQ(request.variables, R"({"reasoning_effort":"low"})");
  EXPECT_EQ(
      request.tools,
      R"([{"type":"function","function":{"name":"f","description":"d","parameters":)"
      R"({"type":"object","properties":{"n":{"const":12345678901234567890}}},"strict":true}},)"
      R"({"type":"function","function":{"name":"g"}}])");
  EXPECT_EQ(request.tool_choice.mode, ToolChoice::Mode::kRequired);
  EXPECT_EQ(request.tool_choice.names, std::vector<std::string>{"g"});
  EXPECT_FALSE(request.parallel_tool_calls);
  EXPECT_TRUE(request.stream);
  EXPECT_NE(request.echo.find(R"("metadata":{"a":"b"},)"), std::string::npos);
  EXPECT_NE(request.echo.find(R"("max_output_tokens":7,)"), std::string::npos);
  EXPECT_NE(request.echo.find(R"("instructions":null,)"), std::string::npos);
  EXPECT_EQ(request.echo.find('\n'), std::string::npos);  // it is part of a frame
}

TEST(OpenaiResponsesRequest, WhatNeedsAStoreIsAnError) {
  EXPECT_EQ(error_of(R"({"input":"Hi","previous_response_id":"resp_1"})"),
            "previous_response_id: 'previous_response_id' names something stored, and nothing is "
            "stored here: send the whole input.");
  EXPECT_EQ(error_of(R"({"input":[{"type":"item_reference","id":"msg_1"}]})").substr(0, 65),
            "input: 'input[0]': an item cannot be named by its id, because not");
  EXPECT_EQ(error_of(R"({"input":"Hi","tools":[{"type":"web_search"}]})"),
            "tools: 'tools[0]': the type 'web_search' is not supported, only 'function'.");
  EXPECT_EQ(error_of(R"({"input":[{"type":"computer_call"}]})"),
            "input: 'input[0]': items of type 'computer_call' are not supported.");
}

class OpenaiResponses : public testing::Test {
 protected:
  void SetUp() override {
    request.chat = true;
    request.tools = R"([{"type":"function","function":{"name":"f"}}])";
    request.echo = R"("metadata":{},)";
  }
  void run(const std::vector<std::string>& texts,
           generate::Finish finish = generate::Finish::kStop) {
    plan = chat_plan(request);
    const auto bytes = [](Token) { return std::string("b"); };
    responder = std::make_unique<ResponsesResponder>(request, bytes, "m", &*plan);
    generate::Counts counts;
    counts.prompt = 4;
    counts.cached = 1;
    for (const std::string& text : texts) {
      ++counts.generated;
      responder->push(0, {.token = 9, .text = text, .bytes = text, .logprob = -0.5f, .top = {}},
                      counts);
    }
    responder->end(0, finish, counts);
  }
  // The data of the frames. Checks their numbers and that each names its type twice.
  static std::vector<Json> events_of(const std::string& frames) {
    std::vector<Json> out;
    for (size_t at = 0; at < frames.size();) {
      const size_t line = frames.find('\n', at), end = frames.find("\n\n", at);
      EXPECT_EQ(frames.substr(at, 7), "event: ");
      EXPECT_EQ(frames.substr(line, 7), "\ndata: ");
      out.push_back(*parse_body(frames.substr(line + 7, end - line - 7)));
      EXPECT_EQ(out.back()["type"], frames.substr(at + 7, line - at - 7));
      EXPECT_EQ(out.back()["sequence_number"], out.size() - 1);
      at = end + 2;
    }
    return out;
  }

  GenerateRequest request;
  std::optional<chat::AnswerPlan> plan;
  std::unique_ptr<ResponsesResponder> responder;
};

const std::vector<std::string> kOutput = {
    "<think>",
    "w",
    "hy",
    "</think>",
    "I ",
    "look.",
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 1234567890123456789}}\n</tool_call>"};

TEST_F(OpenaiResponses, ADocumentHasItems) {
  request.options.logprobs = 0;
  run(kOutput);
  const Json out = *parse_body(responder->document());
  EXPECT_EQ(out["object"], "response");
  EXPECT_EQ(out["status"], "completed");
  EXPECT_EQ(out["model"], "m");
  EXPECT_EQ(out["store"], false);
  EXPECT_EQ(out["metadata"], Json::object());
  ASSERT_EQ(out["output"].size(), 3u);
  const Json &thought = out["output"][0], &message = out["output"][1], &call = out["output"][2];
  EXPECT_EQ(thought["type"], "reasoning");
  EXPECT_EQ(thought["content"], (Json::array({{{"type", "reasoning_text"}, {"text", "why"}}})));
  EXPECT_EQ(message["type"], "message");
  EXPECT_EQ(message["status"], "completed");
  EXPECT_EQ(message["content"][0]["text"], "I look.");
  ASSERT_EQ(message["content"][0]["logprobs"].size(), 3u);  // with the end of the reasoning
  EXPECT_EQ(message["content"][0]["logprobs"][2]["token"], "look.");
  EXPECT_EQ(call["type"], "function_call");
  EXPECT_EQ(call["name"], "f");
  EXPECT_EQ(call["call_id"].get<std::string>().substr(0, 5), "call_");
  EXPECT_EQ(call["arguments"], R"({"n": 1234567890123456789})");
  EXPECT_EQ(out["usage"], (Json{{"input_tokens", 4},
                                {"input_tokens_details", {{"cached_tokens", 1}}},
                                {"output_tokens", 7},
                                {"output_tokens_details", {{"reasoning_tokens", 3}}},
                                {"total_tokens", 11}}));
  EXPECT_EQ(responder->take_frames() + responder->last_frames(), "");
  EXPECT_STREQ(responder->finish(), "tool_calls");
}

TEST_F(OpenaiResponses, EventsHaveOpenaisOrder) {
  request.stream = true;
  run(kOutput);
  std::vector<std::string> types;
  std::string thought, text;
  const std::vector<Json> events = events_of(responder->take_frames());
  for (const Json& event : events) {
    const std::string type = event["type"].get<std::string>().substr(9);
    if (type == "reasoning_text.delta") thought += event["delta"];
    if (type == "output_text.delta") text += event["delta"];
    if (types.empty() || types.back() != type) types.push_back(type);
  }
  EXPECT_EQ(thought, "why");
  EXPECT_EQ(text, "I look.");
  EXPECT_EQ(types, (std::vector<std::string>{
                       "created", "in_progress", "output_item.added", "content_part.added",
                       "reasoning_text.delta", "reasoning_text.done", "content_part.done",
                       "output_item.done", "output_item.added", "content_part.added",
                       "output_text.delta", "output_text.done", "content_part.done",
                       "output_item.done", "output_item.added", "function_call_arguments.delta",
                       "function_call_arguments.done", "output_item.done", "completed"}));
  const Json& whole = events.back()["response"];
  EXPECT_EQ(whole, *parse_body(responder->document()));
  EXPECT_EQ(events[0]["response"]["id"], whole["id"]);
  EXPECT_TRUE(events[0]["response"]["usage"].is_null());
  for (const Json& event : events) {
    if (event.contains("item_id")) {
      EXPECT_EQ(event["item_id"], whole["output"][event["output_index"].get<size_t>()]["id"]);
    }
  }
}

TEST_F(OpenaiResponses, AnOutputThatWasCutIsIncomplete) {
  run({"I "}, generate::Finish::kLength);
  const Json out = *parse_body(responder->document());
  EXPECT_EQ(out["status"], "incomplete");
  EXPECT_EQ(out["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(out["output"][0]["status"], "incomplete");
  run({});  // no text is an empty text
  EXPECT_EQ((*parse_body(responder->document()))["output"][0]["content"][0]["text"], "");
}

TEST_F(OpenaiResponses, AnErrorEndsTheStream) {
  request.stream = true;
  plan = chat_plan(request);
  ResponsesResponder response(request, nullptr, "m", &*plan);
  const auto events = events_of(response.error_frames({.status = 500, .message = "It broke."}));
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[2]["type"], "error");
  EXPECT_EQ(events[2]["message"], "It broke.");
  EXPECT_EQ(events[3]["type"], "response.failed");
  EXPECT_EQ(events[3]["response"]["status"], "failed");
  EXPECT_EQ(events[3]["response"]["error"]["message"], "It broke.");
}

}  // namespace
}  // namespace sluice::openai

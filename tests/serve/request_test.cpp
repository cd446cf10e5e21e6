// Requests as clients write them, valid and invalid: every value is checked, errors name the value,
// and hostile sizes are rejected at their caps.
#include "serve/request.h"

#include <gtest/gtest.h>

namespace sluice::serve {
namespace {

const std::string kChat = R"({
  "model": "any", "messages": [{"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "H\u00e9llo \"you\""}]}],
  "max_completion_tokens": 12, "temperature": 0.25, "top_p": 0.5, "top_k": 3, "min_p": 0.125,
  "seed": 18446744073709551615, "stop": ["\n", "END"], "n": 3, "stream": true,
  "stream_options": {"include_usage": true}, "logprobs": true, "top_logprobs": 2,
  "logit_bias": {"7": -100, "8": 1.5}, "frequency_penalty": 0.5, "presence_penalty": -0.5,
  "user": "u", "store": false, "metadata": {"a": "b"}, "tools": [], "tool_choice": "auto",
  "chat_template_kwargs": {"enable_thinking": false}, "reasoning_format": "none",
  "response_format": {"type": "json_schema", "json_schema": {"name": "s", "strict": true,
    "schema": {"type": "object", "properties": {"z": {"type": "integer"}, "a": {}}}}}})";

using Reader = Problem (*)(std::string_view, GenerateRequest*);

Problem read(Reader reader, const std::string& body) {
  GenerateRequest request;
  return reader(body, &request);
}
// The error of a chat request that has these members besides messages.
Problem chat_with(const std::string& members) {
  return read(read_chat, R"({"messages":[{"role":"user","content":"x"}],)" + members + "}");
}

TEST(ServeRequest, ReadsAChat) {
  GenerateRequest request;
  const Problem problem = read_chat(kChat, &request);
  ASSERT_FALSE(problem) << problem->message;
  EXPECT_TRUE(request.chat && request.stream && request.include_usage && request.inline_reasoning);
  EXPECT_EQ(request.n, 3);
  const generate::Options& o = request.options;
  EXPECT_EQ(o.max_tokens, 12);
  EXPECT_EQ(o.sampling.temperature, 0.25f);
  EXPECT_EQ(o.sampling.top_p, 0.5f);
  EXPECT_EQ(o.sampling.top_k, 3);
  EXPECT_EQ(o.sampling.min_p, 0.125f);
  EXPECT_EQ(o.sampling.seed, ~0ull);
  EXPECT_EQ(o.sampling.frequency_penalty, 0.5f);
  EXPECT_EQ(o.sampling.presence_penalty, -0.5f);
  EXPECT_EQ(o.stop, (std::vector<std::string>{"\n", "END"}));
  EXPECT_EQ(o.logprobs, 2);
  ASSERT_EQ(o.sampling.logit_bias.size(), 2u);
  EXPECT_EQ(o.sampling.logit_bias[1], (std::pair<Token, float>(8, 1.5f)));
  EXPECT_EQ(request.variables, R"({"enable_thinking":false})");
  EXPECT_EQ(request.messages.substr(0, 30), R"([{"role":"system","content":"B)");
  ASSERT_TRUE(o.constraint);
  EXPECT_EQ(o.constraint->kind, grammar::Kind::kJsonSchema);
  // Members keep the order of the request.
  EXPECT_EQ(o.constraint->text,
            R"({"type":"object","properties":{"z":{"type":"integer"},"a":{}}})");
}

TEST(ServeRequest, EveryTruncatedLengthIsRejected) {
  for (size_t n = 0; n < kChat.size(); ++n) {
    const Problem problem = read(read_chat, kChat.substr(0, n));
    ASSERT_TRUE(problem) << n;
    EXPECT_EQ(problem->status, 400);
    EXPECT_FALSE(problem->message.empty());
  }
}

TEST(ServeRequest, ReadsACompletion) {
  GenerateRequest request;
  ASSERT_FALSE(read_completion(R"({"prompt":"Once","model":"m","seed":-1})", &request));
  EXPECT_FALSE(request.chat || request.stream);
  EXPECT_EQ(request.options.max_tokens, 16);
  EXPECT_EQ(request.options.logprobs, -1);
  EXPECT_EQ(request.options.sampling.seed, ~0ull);
  ASSERT_EQ(request.prompts.size(), 1u);
  EXPECT_EQ(request.prompts[0].text, "Once");
  request = {};
  ASSERT_FALSE(
      read_completion(R"({"prompt":[[1,2],[3]],"n":8,"stop":null,"logprobs":5})", &request));
  EXPECT_EQ(request.prompts[0].tokens, (std::vector<Token>{1, 2}));
  EXPECT_TRUE(request.prompts[1].is_tokens);
  EXPECT_EQ(request.options.logprobs, 5);
  EXPECT_FALSE(request.options.post_sampling_probs);
  request = {};
  ASSERT_FALSE(
      read_completion(R"({"prompt":["a","b"],"stop":"x","post_sampling_probs":true})", &request));
  EXPECT_TRUE(request.options.post_sampling_probs);
  EXPECT_EQ(request.prompts[1].text, "b");
  EXPECT_EQ(request.options.stop, std::vector<std::string>{"x"});
}

TEST(ServeRequest, ErrorsNameTheWrongMember) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("temperature":"hot")", "temperature"},
      {R"("temperature":1e39)", "temperature"},
      {R"("top_k":-1)", "top_k"},
      {R"("top_k":2.5)", "top_k"},
      {R"("max_tokens":99999999999999999999)", "max_tokens"},
      {R"("n":0)", "n"},
      {R"("n":17)", "n"},
      {R"("stream":1)", "stream"},
      {R"("stream_options":{"include_usage":true})", "stream_options"},
      {R"("stream":true,"stream_options":{"what":1})", "stream_options"},
      {R"("seed":"7")", "seed"},
      {R"("seed":0.5)", "seed"},
      {R"("stop":7)", "stop"},
      {R"("stop":["a",null])", "stop"},
      {R"("logit_bias":{"x":1})", "logit_bias"},
      {R"("logit_bias":{"1":101})", "logit_bias"},
      {R"("logit_bias":{"-":1})", "logit_bias"},
      {R"("logit_bias":[])", "logit_bias"},
      {R"("top_logprobs":3)", "top_logprobs"},
      {R"("post_sampling_probs":1)", "post_sampling_probs"},
      {R"("logprobs":true,"top_logprobs":21)", "top_logprobs"},
      {R"("tools":{})", "tools"},
      {R"("tools":[{"type":"function","function":{"name":"f"}}])", "tools"},
      {R"("tool_choice":"required")", "tool_choice"},
      {R"("response_format":{"type":"xml"})", "response_format"},
      {R"("response_format":{"type":"json_schema"})", "response_format"},
      {R"("response_format":{"type":"json_schema","json_schema":{"schema":7}})", "response_format"},
      {R"("response_format":"json")", "response_format"},
      {R"("chat_template_kwargs":[])", "chat_template_kwargs"},
      {R"("chat_template":"{{ x }}")", "chat_template"},
      {R"("functions":[{"name":"f"}])", "functions"},
      {R"("reasoning_effort":"low")", "reasoning_effort"},
      {R"("modalities":["audio"])", "modalities"},
      {R"("messages":[])", "messages"},
      {R"("messages":[{"content":"x"}])", "messages"},
      {R"("messages":["x"])", "messages"},
  };
  for (const auto& [members, param] : cases) {
    const Problem problem = chat_with(members);
    ASSERT_TRUE(problem) << members;
    EXPECT_EQ(problem->status, 400) << members;
    EXPECT_EQ(problem->param, param) << members << problem->message;
    EXPECT_NE(problem->message.find(param), std::string::npos) << problem->message;
  }
  const Problem unknown = chat_with(R"("temprature":0)");
  ASSERT_TRUE(unknown);
  EXPECT_EQ(unknown->message, "Unrecognized request argument supplied: temprature");
  // Unsupported members are no error if they are switched off.
  EXPECT_FALSE(
      chat_with(R"("functions":[],"reasoning_effort":"none","audio":null,"verbosity":"")"));
  for (const char* members : {R"("echo":true)", R"("suffix":"x")", R"("best_of":2)", R"("n":9)",
                              R"("logprobs":true)", R"("response_format":{"type":"text"})"}) {
    EXPECT_TRUE(read(read_completion, R"({"prompt":["a","b"],)" + std::string(members) + "}"))
        << members;
  }
  for (const char* body :
       {"{}", "[]", "7", "\"x\"", "null", R"({"prompt":[]})", R"({"prompt":{}})",
        R"({"prompt":[1,"a"]})", R"({"prompt":[-1]})", R"({"prompt":[4294967296]})",
        R"({"prompt":["a",[]]})", R"({"prompt":true})"}) {
    EXPECT_TRUE(read(read_completion, body)) << body;
  }
}

TEST(ServeRequest, HostileSizesAreRejectedAtTheirCaps) {
  const auto said = [](const std::string& body) {
    const Result<Json> json = parse_body(body);
    return json.ok() ? "" : json.status().message();
  };
  EXPECT_EQ(said(std::string(1 << 20, '[')), "The JSON of the request is nested too deeply.");
  std::string many = "[";
  for (size_t i = 0; i <= kMaxValues; ++i) many += "0,";
  EXPECT_EQ(said(many + "0]"), "The JSON of the request has too many values.");
  std::string members = "{";
  for (size_t i = 0; i <= kMaxMembers; ++i) members += "\"" + std::to_string(i) + "\":0,";
  EXPECT_EQ(said(members + "\"x\":0}"), "An object of the request has too many members.");
  std::string biases;
  for (size_t i = 0; i <= sample::kMaxLogitBias; ++i) {
    biases += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":0";
  }
  EXPECT_EQ(chat_with("\"logit_bias\":{" + biases + "}")->param, "logit_bias");
  std::string texts = "\"x\"";
  for (int i = 0; i < 3000; ++i) texts += ",\"x\"";
  EXPECT_EQ(chat_with("\"stop\":[" + texts + "]")->param, "stop");
  EXPECT_EQ(read(read_completion, "{\"prompt\":[" + texts + "]}")->param, "prompt");
  EmbeddingRequest embedding;
  EXPECT_EQ(read_embedding("{\"input\":[" + texts + "]}", &embedding)->param, "input");
  EXPECT_NE(said("{\"a\":\"\xff\"}"), "");
  EXPECT_NE(said("{\"a\":1e999}"), "");
}

TEST(ServeRequest, ReadsTheOtherRequests) {
  EmbeddingRequest embedding;
  ASSERT_FALSE(read_embedding(
      R"({"input":"a","encoding_format":"base64","dimensions":8,"model":"m"})", &embedding));
  EXPECT_TRUE(embedding.base64);
  EXPECT_EQ(embedding.options.dimensions, 8);
  EXPECT_TRUE(read_embedding(R"({"input":"a","encoding_format":"int8"})", &embedding));
  EXPECT_TRUE(read_embedding(R"({"input":"a","dimensions":0})", &embedding));
  EXPECT_TRUE(read_embedding(R"({"inputs":"a"})", &embedding));
  TokenizeRequest tokenize;
  ASSERT_FALSE(read_tokenize(R"({"content":"a","add_special":false})", &tokenize));
  EXPECT_FALSE(tokenize.add_special);
  EXPECT_TRUE(tokenize.parse_special);
  EXPECT_TRUE(read_tokenize("{}", &tokenize));
  std::vector<Token> tokens;
  ASSERT_FALSE(read_detokenize(R"({"tokens":[1,2]})", &tokens));
  EXPECT_EQ(tokens, (std::vector<Token>{1, 2}));
  EXPECT_FALSE(read_detokenize(R"({"tokens":[]})", &tokens));
  EXPECT_TRUE(read_detokenize(R"({"tokens":["a"]})", &tokens));
  EXPECT_TRUE(read_detokenize("{}", &tokens));
}

TEST(ServeRequest, EngineErrorsMapToHttpStatuses) {
  EXPECT_EQ(api_error(Status(Code::kPromptTooLong, "long")).code, "context_length_exceeded");
  EXPECT_EQ(api_error(Status(Code::kPromptTooLong, "long")).status, 400);
  EXPECT_EQ(api_error(Status(Code::kSchemaUnsupported, "x")).status, 400);
  EXPECT_EQ(api_error(Status(Code::kNetwork, "gone")).status, 500);
  EXPECT_EQ(api_error(Status(Code::kNetwork, "gone")).code, "NETWORK");
}

}  // namespace
}  // namespace sluice::serve

// Requests as clients write them, valid and invalid: every value is checked, errors name the value,
// and hostile sizes are rejected at their caps.
#include <gtest/gtest.h>

#include <limits>

#include "openai/chat_prompt.h"
#include "openai/json.h"
#include "openai/request.h"

namespace sluice::openai {
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

TEST(OpenaiRequest, ReadsAChat) {
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
  EXPECT_EQ(request.variables, R"({"enable_thinking": false})");
  EXPECT_EQ(request.messages.substr(0, 32), R"([{"role": "system", "content": ")");
  ASSERT_TRUE(o.constraint);
  EXPECT_EQ(o.constraint->kind, grammar::Kind::kJsonSchema);
  // Members keep the order of the request.
  EXPECT_EQ(o.constraint->text,
            R"({"type": "object", "properties": {"z": {"type": "integer"}, "a": {}}})");
}

TEST(OpenaiRequest, EveryTruncatedLengthIsRejected) {
  for (size_t n = 0; n < kChat.size(); ++n) {
    const Problem problem = read(read_chat, kChat.substr(0, n));
    ASSERT_TRUE(problem) << n;
    EXPECT_EQ(problem->status, 400);
    EXPECT_FALSE(problem->message.empty());
  }
}

TEST(OpenaiRequest, ReadsACompletion) {
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

TEST(OpenaiRequest, ReadsLlamaServersFields) {
  GenerateRequest request;
  ASSERT_FALSE(read_completion(
      R"({"prompt":"a","n_predict":7,"ignore_eos":true,"cache_prompt":false,"n_probs":3,)"
      R"("timings_per_token":true,"repeat_last_n":-1,"stop_token_ids":[5,6.0],)"
      R"("logit_bias":[[7,-1],[8,false]],"grammar":"root ::= \"a\""})",
      &request));
  const generate::Options& o = request.options;
  EXPECT_EQ(o.max_tokens, 7);
  EXPECT_TRUE(o.ignore_eos && request.timings_per_token);
  EXPECT_FALSE(o.reuse_prefix);
  EXPECT_EQ(o.logprobs, 3);
  EXPECT_EQ(o.sampling.penalty_last_n, -1);
  EXPECT_EQ(request.options.stop_tokens, (std::vector<Token>{5, 6}));
  ASSERT_EQ(o.sampling.logit_bias.size(), 2u);
  EXPECT_EQ(o.sampling.logit_bias[0], (std::pair<Token, float>(7, -1.f)));
  EXPECT_EQ(o.sampling.logit_bias[1].second, -std::numeric_limits<float>::infinity());
  EXPECT_EQ(o.constraint->kind, grammar::Kind::kGbnf);
}

TEST(OpenaiRequest, ReadsACacheKey) {
  const std::string longest(256, 'k');
  const auto body = [](const std::string& key) {
    return R"({"prompt":"a","prompt_cache_key":)" + key + "}";
  };
  GenerateRequest request;
  ASSERT_FALSE(read_completion(body('"' + longest + '"'), &request));
  EXPECT_EQ(request.cache_key, longest);
  for (const std::string& wrong : {'"' + longest + "k\"", std::string("7")}) {
    const Problem problem = read_completion(body(wrong), &request);
    ASSERT_TRUE(problem) << wrong;
    EXPECT_EQ(problem->param, "prompt_cache_key");
  }
}

TEST(OpenaiRequest, WholeNumbersMayBeWrittenAsDecimals) {
  GenerateRequest request;
  ASSERT_FALSE(
      read_completion(R"({"prompt":[1.0,2],"max_tokens":5.0,"top_k":1e2,"seed":42.0})", &request));
  EXPECT_EQ(request.prompts[0].tokens, (std::vector<Token>{1, 2}));
  EXPECT_EQ(request.options.max_tokens, 5);
  EXPECT_EQ(request.options.sampling.top_k, 100);
  EXPECT_EQ(request.options.sampling.seed, 42u);
}

// The most specific field decides; -1 is no limit.
TEST(OpenaiRequest, TheLimitOfTokensHasThreeNames) {
  const auto most = [](const std::string& members) {
    GenerateRequest request;
    EXPECT_FALSE(
        read_chat(R"({"messages":[{"role":"user","content":"x"}])" + members + "}", &request));
    return request.options.max_tokens;
  };
  EXPECT_EQ(most(""), -1);
  EXPECT_EQ(most(R"(,"max_tokens":null)"), -1);
  EXPECT_EQ(most(R"(,"max_tokens":-1,"n_predict":3)"), -1);
  EXPECT_EQ(most(R"(,"max_completion_tokens":2,"max_tokens":4,"n_predict":3)"), 2);
}

// Texts that only pass through keep their numbers, their order and their spaces.
TEST(OpenaiRequest, MessagesToolsAndSchemasAreKeptAsTheyWereSent) {
  const std::string messages =
      R"([ {"role":"user","content":"x","n":12345678901234567890123, "f":1.0e2} ])";
  const std::string tools =
      R"([{"type":"function","function":{"name":"f","parameters":{"b":1,"a":1234567890123456789012}}}])";
  GenerateRequest request;
  ASSERT_FALSE(read_chat("\xef\xbb\xbf {\"tools\" : " + tools + ", \"mess\\u0061ges\":" + messages +
                             R"(,"chat_template_kwargs":{"x":1.50},"parallel_tool_calls":false})",
                         &request));
  EXPECT_EQ(request.messages, messages);
  EXPECT_EQ(request.tools, tools);
  EXPECT_EQ(request.variables, R"({"x":1.50})");
  EXPECT_FALSE(request.parallel_tool_calls);
  for (const char* format :
       {R"({"type":"json_object","schema": {"const":1e2 } })",
        R"({"type":"json_schema","json_schema":{"name":"a","schema": {"const":1e2 }}})"}) {
    request = {};
    ASSERT_FALSE(read_chat(R"({"messages":)" + messages + R"(,"response_format":)" + format + "}",
                           &request));
    EXPECT_EQ(request.options.constraint->text, R"({"const":1e2 })");
  }
}

TEST(OpenaiRequest, HalfASurrogatePairIsReplaced) {
  EXPECT_EQ(replace_lone_surrogates(R"("a\ud83d")"), R"("a\ufffd")");
  EXPECT_EQ(replace_lone_surrogates(R"("\ud83d\ud83d\ude00\ude00")"),
            R"("\ufffd\ud83d\ude00\ufffd")");
  EXPECT_EQ(replace_lone_surrogates(R"("\\ud83d \u0041")"), R"("\\ud83d \u0041")");
  for (const char* open : {"\\", "\\u", "\\ud83", "\\ud83d", "\\ud83d\\", "\\ud83d\\u"}) {
    EXPECT_FALSE(replace_lone_surrogates(open).empty());
  }
  GenerateRequest request;
  ASSERT_FALSE(read_completion(R"({"prompt":"Once \ud83d"})", &request));
  EXPECT_EQ(request.prompts[0].text, "Once \xef\xbf\xbd");
}

TEST(OpenaiRequest, FindsTheTextOfAMember) {
  const char* object =
      R"({"a":{"b":"}","c":[1,{"d":2}]} , "e":"x\"y", "f": -1.5e3 ,"g":null,"a":[ ]})";
  EXPECT_EQ(member_text(object, "a"), "[ ]");  // the last one counts
  EXPECT_EQ(member_text(object, "e"), R"("x\"y")");
  EXPECT_EQ(member_text(object, "f"), "-1.5e3");
  EXPECT_EQ(member_text(object, "g"), "");
  EXPECT_EQ(member_text(object, "b"), "");
  EXPECT_EQ(member_text("{}", "a"), "");
  EXPECT_EQ(member_text("[1]", "a"), "");
}

TEST(OpenaiRequest, ReadsToolChoices) {
  using Mode = ToolChoice::Mode;
  const auto choice = [](const std::string& text) {
    GenerateRequest request;
    const Problem problem = read_chat(
        R"({"messages":[{"role":"user","content":"x"}],"tools":[)"
        R"({"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}],)"
        R"("tool_choice":)" +
            text + "}",
        &request);
    EXPECT_FALSE(problem) << text << problem->message;
    return request.tool_choice;
  };
  EXPECT_EQ(choice("null").mode, Mode::kAuto);
  EXPECT_EQ(choice(R"("auto")").mode, Mode::kAuto);
  EXPECT_EQ(choice(R"("none")").mode, Mode::kNone);
  EXPECT_EQ(choice(R"("required")").mode, Mode::kRequired);
  const ToolChoice one = choice(R"({"type":"function","function":{"name":"g"}})");
  EXPECT_EQ(one.mode, Mode::kRequired);
  EXPECT_EQ(one.names, std::vector<std::string>{"g"});
  const ToolChoice some = choice(R"({"type":"allowed_tools","allowed_tools":{"mode":"auto",)"
                                 R"("tools":[{"type":"function","function":{"name":"f"}}]}})");
  EXPECT_EQ(some.mode, Mode::kAuto);
  EXPECT_EQ(some.names, std::vector<std::string>{"f"});
}

TEST(OpenaiRequest, ReasoningEffortIsAVariableOfTheTemplate) {
  const auto variables = [](const std::string& members) {
    GenerateRequest request;
    EXPECT_FALSE(
        read_chat(R"({"messages":[{"role":"user","content":"x"}],)" + members + "}", &request));
    return request.variables;
  };
  EXPECT_EQ(variables(R"("reasoning_effort":"low")"), R"({"reasoning_effort":"low"})");
  EXPECT_EQ(variables(R"("reasoning_effort":"none")"), R"({"enable_thinking":false})");
  EXPECT_EQ(variables(R"("reasoning_effort":"high","chat_template_kwargs":{"a":1})"),
            R"({"reasoning_effort":"high","a":1})");
  EXPECT_EQ(variables(R"("reasoning_effort":"high","chat_template_kwargs":{ })"),
            R"({"reasoning_effort":"high"})");
  EXPECT_EQ(variables(R"("reasoning_effort":"high","chat_template_kwargs":{"reasoning_effort":1})"),
            R"({"reasoning_effort":1})");
}

TEST(OpenaiRequest, APrefillHasNoGenerationPrompt) {
  GenerateRequest request;
  ASSERT_FALSE(read_chat(
      R"({"messages":[{"role":"assistant","content":"x"}],"continue_final_message":true})",
      &request));
  EXPECT_TRUE(request.continue_final_message);
  EXPECT_FALSE(request.add_generation_prompt);
}

TEST(OpenaiRequest, JsonIsReadAndPrinted) {
  const auto copy = [](std::string_view text) {
    const Result<Json> json = parse_body(text);
    return json.ok() ? to_text(*json) : "";
  };
  for (const char* same : {"{}", "[]", "null", "true", "false", "0", "-1", "18446744073709551615",
                           "-9223372036854775808", "1.5", "-0.25", "\"\"",
                           R"("a\"\\\n\r\t\u0001é😀/")", R"({"b":1,"a":[[],{}],"":null})"}) {
    EXPECT_EQ(copy(same), same);
  }
  EXPECT_EQ(copy("\xef\xbb\xbf [ 1 , {\t\"a\" : [ ] }\r\n] "), R"([1,{"a":[]}])");
  EXPECT_EQ(copy(R"({"a":1,"b":2,"a":3})"), R"({"a":3,"b":2})");
  EXPECT_EQ(copy(R"("\u00e9\ud83d\ude00\ud83d\/")"), "\"é😀\xef\xbf\xbd/\"");
  EXPECT_EQ(copy("[1e2,18446744073709551616]"), "[100.0,1.8446744073709552e+19]");
  for (const char* wrong : {"", " ", "01", "1.", "+1", "nul", "[1,]", "{\"a\":1,}", "{a:1}", "'a'",
                            "[1] 2", "\"\\x\"", "\"\n\"", "\"a", "NaN", "1e999", "\xff"}) {
    EXPECT_EQ(copy(wrong), "") << wrong;
  }
  EXPECT_EQ(to_text(Json("a\xff\xf0\x9f")), "\"a\xef\xbf\xbd\xef\xbf\xbd\"");
  EXPECT_EQ(to_text(Json(std::numeric_limits<double>::infinity())), "null");
}

TEST(OpenaiRequest, AnUnknownFieldIsNamedWithTheSpellingThatIsKnown) {
  const auto said = [](const char* field) {
    return chat_with("\"" + std::string(field) + "\":1")->message;
  };
  EXPECT_EQ(said("maxTokens"),
            "Unrecognized request argument supplied: maxTokens (use max_tokens)");
  EXPECT_EQ(said("Top_P"), "Unrecognized request argument supplied: Top_P (use top_p)");
  EXPECT_EQ(said("other"), "Unrecognized request argument supplied: other");
}

TEST(OpenaiRequest, TokensAreOfTheVocabulary) {
  GenerateRequest request;
  ASSERT_FALSE(
      read_completion(R"({"prompt":"a","logit_bias":{"9":1},"stop_token_ids":[8]})", &request));
  EXPECT_FALSE(check_tokens(request, 10));
  EXPECT_EQ(check_tokens(request, 9)->param, "logit_bias");
  request.options.sampling.logit_bias.clear();
  EXPECT_EQ(check_tokens(request, 8)->param, "stop_token_ids");
}

TEST(OpenaiRequest, ToolsThatMustNotBeCalledAreNotRendered) {
  GenerateRequest request;
  const auto tools_of = [&](const std::string& choice) {
    request = {};
    EXPECT_FALSE(
        read_chat(R"({"messages":[{"role":"user"}],"tools":[{"type":"function","function":)"
                  R"({"name":"f"}}],"tool_choice":")" +
                      choice + "\"}",
                  &request));
    return template_request(request).tools;
  };
  EXPECT_NE(tools_of("auto"), "");
  EXPECT_EQ(tools_of("none"), "");
}

TEST(OpenaiRequest, WithoutStructuredOutputARequiredCallIsOnlyBegun) {
  const std::string source = "{{ tools }}<tool_call>";
  const chat::AnswerFormats formats(chat::AnswerFormat(source, {}));
  for (const bool can_constrain : {true, false}) {
    GenerateRequest request;
    ASSERT_FALSE(
        read_chat(R"({"messages":[{"role":"user"}],"tools":[{"type":"function","function":)"
                  R"({"name":"f"}}],"tool_choice":"required"})",
                  &request));
    chat::Prompt prompt;
    std::optional<chat::AnswerPlan> plan;
    ASSERT_FALSE(plan_response(formats, &request, &prompt, &plan, can_constrain));
    EXPECT_EQ(request.options.constraint.has_value(), can_constrain);
    EXPECT_EQ(prompt.text().empty(), can_constrain) << prompt.text();
  }
}

TEST(OpenaiRequest, HostileSizesAreRejectedAtTheirCaps) {
  const auto said = [](const std::string& body) {
    const Result<Json> json = parse_body(body);
    return json.ok() ? "" : json.status().message();
  };
  EXPECT_EQ(said(std::string(1 << 20, '[')), "The body of the request is not valid JSON.");
  EXPECT_EQ(said(std::string(kMaxDepth, '[') + std::string(kMaxDepth, ']')), "");
  EXPECT_EQ(said(std::string(kMaxDepth + 1, '[') + std::string(kMaxDepth + 1, ']')),
            "The JSON of the request is nested too deeply.");
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

TEST(OpenaiRequest, ReadsTheOtherRequests) {
  EmbeddingRequest embedding;
  ASSERT_FALSE(read_embedding(
      R"({"input":"a","encoding_format":"base64","dimensions":8,"model":"m"})", &embedding));
  EXPECT_TRUE(embedding.base64);
  EXPECT_EQ(embedding.options.dimensions, 8);
  for (const auto& [members, most] :
       {std::pair("\"truncate\":true", -1), std::pair("\"truncate\":\"END\"", -1),
        std::pair("\"truncate_prompt_tokens\":8", 8), std::pair("\"truncate\":false", 0)}) {
    embedding = {};
    ASSERT_FALSE(read_embedding(R"({"input":"a",)" + std::string(members) + "}", &embedding));
    EXPECT_EQ(embedding.truncate, most) << members;
  }
  RerankRequest rerank;
  ASSERT_FALSE(read_rerank(R"({"query":"q","documents":["a",{"text":"b"}],"top_n":1})", &rerank));
  EXPECT_EQ(rerank.documents, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(rerank.top_n, 1);
  EXPECT_FALSE(rerank.tei);
  rerank = {};
  ASSERT_FALSE(read_rerank(R"({"query":"q","texts":["a"],"return_text":true})", &rerank));
  EXPECT_TRUE(rerank.tei && rerank.return_documents);
  TokenizeRequest tokenize;
  ASSERT_FALSE(read_tokenize(R"({"content":"a","add_special":false})", &tokenize));
  EXPECT_FALSE(tokenize.add_special);
  EXPECT_TRUE(tokenize.parse_special);
  std::vector<Token> tokens;
  ASSERT_FALSE(read_detokenize(R"({"tokens":[1,2]})", &tokens));
  EXPECT_EQ(tokens, (std::vector<Token>{1, 2}));
  EXPECT_FALSE(read_detokenize(R"({"tokens":[]})", &tokens));
}

TEST(OpenaiRequest, EngineErrorsMapToHttpStatuses) {
  EXPECT_EQ(api_error(Status(Code::kPromptTooLong, "long")).code, "context_length_exceeded");
  EXPECT_EQ(api_error(Status(Code::kPromptTooLong, "long")).status, 400);
  EXPECT_EQ(api_error(Status(Code::kSchemaUnsupported, "x")).status, 400);
  EXPECT_EQ(api_error(Status(Code::kNetwork, "gone")).status, 500);
  EXPECT_EQ(api_error(Status(Code::kNetwork, "gone")).code, "NETWORK");
}

}  // namespace
}  // namespace sluice::openai

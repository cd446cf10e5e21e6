// Responses of the OpenAI-compatible API: documents and the events of streams.
#include <gtest/gtest.h>

#include <cmath>

#include "chat_plan.h"
#include "openai/response.h"

namespace sluice::openai {
namespace {

// Feeds a response. Tokens 5 and 6 are the halves of an e with an acute accent, 7 is a control
// token, and 9 has the bytes of the piece's text.
class Answer {
 public:
  // `prompt`: of a chat.
  explicit Answer(const GenerateRequest& request, const char* prompt = "Hi")
      : plan_(chat_plan(request, prompt)),
        response_(
            request, [this](Token token) { return bytes(token); }, "m",
            request.chat ? &plan_ : nullptr) {}
  void piece(const std::string& text, int32_t index = 0, Token token = 9) {
    text_ = text;
    generate::Piece piece{
        .token = token, .text = text, .bytes = bytes(token), .logprob = -0.5f, .top = {}};
    piece.top = {{9, -0.5f}, {7, -1.f}};
    response_.push(index, piece, counts(1));
  }
  void end(int32_t index = 0) { response_.end(index, generate::Finish::kStop, counts(2)); }
  ApiResponse* operator->() { return &response_; }

 private:
  std::string bytes(Token token) const {
    return token == 5 ? "\xc3" : token == 6 ? "\xa9" : token == 7 ? "<|end|>" : text_;
  }
  static generate::Counts counts(int32_t generated) {
    generate::Counts out;
    out.prompt = 4;
    out.cached = 1;
    out.generated = generated;
    out.prompt_ms = 6;
    out.generate_ms = 4;
    return out;
  }
  std::string text_;
  chat::AnswerPlan plan_;
  ApiResponse response_;
};

GenerateRequest completion() {
  GenerateRequest request;
  request.prompts.resize(1);
  request.options.logprobs = 2;
  return request;
}

// The JSON values of a stream's frames.
std::vector<Json> parse(const std::string& frames) {
  std::vector<Json> out;
  for (size_t at = 0; at < frames.size();) {
    EXPECT_EQ(frames.substr(at, 6), "data: ");
    const size_t end = frames.find("\n\n", at);
    if (frames.substr(at, end - at) == "data: [DONE]") {
      EXPECT_EQ(end + 2, frames.size());
      break;
    }
    Result<Json> value = parse_body(frames.substr(at + 6, end - at - 6));
    EXPECT_TRUE(value.ok());
    out.push_back(*value);
    at = end + 2;
  }
  return out;
}

TEST(OpenaiResponse, AChatIsOneDocument) {
  GenerateRequest request;
  request.chat = true;
  request.options.logprobs = 2;
  Answer answer(request);
  for (const char* text : {"<thi", "nk>why", "</think>\n\nbe", "cause"}) answer.piece(text);
  answer.end();
  const Json out = *parse_body(answer->document());
  EXPECT_EQ(out["object"], "chat.completion");
  EXPECT_EQ(out["model"], "m");
  EXPECT_EQ(out["id"].get<std::string>().substr(0, 9), "chatcmpl-");
  const Json& choice = out["choices"][0];
  EXPECT_EQ(choice["message"]["role"], "assistant");
  EXPECT_EQ(choice["message"]["content"], "because");
  EXPECT_EQ(choice["message"]["reasoning_content"], "why");
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["logprobs"]["content"].size(), 4u);
  EXPECT_EQ(choice["logprobs"]["content"][3]["token"], "cause");
  EXPECT_EQ(choice["logprobs"]["content"][3]["bytes"].size(), 5u);
  EXPECT_EQ(choice["logprobs"]["content"][0]["top_logprobs"].size(), 2u);
  EXPECT_EQ(out["usage"]["prompt_tokens"], 4);
  EXPECT_EQ(out["usage"]["total_tokens"], 6);
  EXPECT_EQ(out["usage"]["prompt_tokens_details"]["cached_tokens"], 1);
}

constexpr const char* kCalls =
    "<think>why</think><tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": "
    "1234567890123456789}}\n"
    "</tool_call>\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";

TEST(OpenaiResponse, ToolCallsAreMembersOfTheMessage) {
  GenerateRequest request;
  request.chat = true;
  request.tools = R"([{"type":"function","function":{"name":"f"}}])";
  Answer answer(request);
  answer.piece(kCalls);
  answer.end();
  const Json choice = (*parse_body(answer->document()))["choices"][0];
  const Json& message = choice["message"];
  EXPECT_TRUE(message["content"].is_null());
  EXPECT_EQ(message["reasoning_content"], "why");
  ASSERT_EQ(message["tool_calls"].size(), 2u);
  const Json& call = message["tool_calls"][0];
  EXPECT_EQ(call["type"], "function");
  EXPECT_EQ(call["function"]["name"], "f");
  EXPECT_EQ(call["function"]["arguments"], R"({"n": 1234567890123456789})");
  EXPECT_NE(call["id"], message["tool_calls"][1]["id"]);
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
}

TEST(OpenaiResponse, ToolCallsStreamWithTheirIndex) {
  GenerateRequest request;
  request.chat = request.stream = true;
  request.tools = R"([{"type":"function","function":{"name":"f"}}])";
  Answer answer(request);
  for (const char* at = kCalls; *at != 0; ++at) answer.piece(std::string(1, *at));
  answer.end();
  std::vector<int> indexes;
  std::string finish;
  for (const Json& chunk : parse(answer->take_frames())) {
    const Json& choice = chunk["choices"][0];
    if (!choice["finish_reason"].is_null()) finish = choice["finish_reason"];
    if (!choice["delta"].contains("tool_calls")) continue;
    const Json& call = choice["delta"]["tool_calls"][0];
    indexes.push_back(call["index"].get<int>());
    EXPECT_EQ(call["function"]["name"], "f");
  }
  EXPECT_EQ(indexes, (std::vector<int>{0, 1}));
  EXPECT_EQ(finish, "tool_calls");
}

TEST(OpenaiResponse, AChatStreams) {
  GenerateRequest request;
  request.chat = request.stream = request.include_usage = true;
  request.n = 2;
  Answer answer(request, "Hi<think>");
  std::string frames = answer->take_frames();
  for (const int32_t index : {0, 1}) {
    answer.piece("hm</think>ye", index);
    answer.piece("s", index);
    answer.end(index);
    frames += answer->take_frames();
  }
  frames += answer->last_frames();
  std::string content[2], thought[2], finish[2];
  const std::vector<Json> chunks = parse(frames);
  for (size_t i = 0; i + 1 < chunks.size(); ++i) {
    EXPECT_EQ(chunks[i]["object"], "chat.completion.chunk");
    EXPECT_TRUE(chunks[i]["usage"].is_null());
    EXPECT_EQ(chunks[i]["id"], chunks[0]["id"]);
    const Json& choice = chunks[i]["choices"][0];
    const size_t index = choice["index"].get<size_t>();
    content[index] += choice["delta"].value("content", "");
    thought[index] += choice["delta"].value("reasoning_content", "");
    if (!choice["finish_reason"].is_null()) finish[index] = choice["finish_reason"];
  }
  EXPECT_EQ(chunks[0]["choices"][0]["delta"]["role"], "assistant");
  for (const int i : {0, 1}) {
    EXPECT_EQ(content[i], "yes");
    EXPECT_EQ(thought[i], "hm");
    EXPECT_EQ(finish[i], "stop");
  }
  EXPECT_TRUE(chunks.back()["choices"].empty());
  EXPECT_EQ(chunks.back()["usage"]["prompt_tokens"], 4);  // once for both choices
  EXPECT_EQ(chunks.back()["usage"]["completion_tokens"], 4);
}

TEST(OpenaiResponse, ACompletionListsItsTokens) {
  GenerateRequest request;
  request.prompts.resize(1);
  request.options.logprobs = 2;
  Answer answer(request);
  answer.piece("h\xc3\xa9");
  answer.piece("y");
  answer.end();
  const Json out = *parse_body(answer->document());
  EXPECT_EQ(out["object"], "text_completion");
  const Json& choice = out["choices"][0];
  EXPECT_EQ(choice["text"], "h\xc3\xa9y");
  EXPECT_EQ(choice["logprobs"]["tokens"][1], "y");
  EXPECT_EQ(choice["logprobs"]["text_offset"][1], 2);
  EXPECT_EQ(choice["logprobs"]["token_logprobs"][0], -0.5);
  EXPECT_EQ(choice["logprobs"]["top_logprobs"][0].size(), 2u);
}

TEST(OpenaiResponse, PostSamplingProbsHaveLlamaServersFormat) {
  for (const bool chat : {true, false}) {
    GenerateRequest request = completion();
    request.chat = chat;
    request.options.post_sampling_probs = true;
    Answer answer(request);
    answer.piece("h\xc3\xa9");
    answer.end();
    const Json out = *parse_body(answer->document());
    const Json& entry = out["choices"][0]["logprobs"]["content"][0];
    EXPECT_EQ(entry["id"], 9);
    EXPECT_EQ(entry["token"], "h\xc3\xa9");
    EXPECT_EQ(entry["bytes"].size(), 3u);
    EXPECT_NEAR(entry["prob"].get<double>(), std::exp(-0.5), 1e-9);
    EXPECT_EQ(entry["top_probs"].size(), 2u);
    EXPECT_EQ(entry["top_probs"][1]["id"], 7);
    EXPECT_NEAR(entry["top_probs"][1]["prob"].get<double>(), std::exp(-1.), 1e-9);
    EXPECT_FALSE(entry.contains("logprob") || entry.contains("top_logprobs"));
  }
}

// Several tokens may have one text, and JSON one member of that name.
TEST(OpenaiResponse, OfTokensWithOneTextTheLikeliestCounts) {
  const GenerateRequest request = completion();
  Answer answer(request);
  answer->push(
      0, {.token = 9, .text = "a", .bytes = "a", .logprob = -0.5f, .top = {{5, -0.5f}, {6, -3.f}}},
      {});
  answer.end();
  const Json out = *parse_body(answer->document());
  const Json& top = out["choices"][0]["logprobs"]["top_logprobs"][0];
  ASSERT_EQ(top.size(), 1u);  // both are parts of a character
  EXPECT_EQ(top.front(), -0.5);
}

// A character of two tokens: each entry has its own bytes, and together they are the text's.
TEST(OpenaiResponse, LogprobsHaveTheBytesOfEachToken) {
  GenerateRequest request = completion();
  request.chat = true;
  Answer answer(request);
  answer.piece("", 0, 5);
  answer.piece("\xc3\xa9", 0, 6);
  answer.piece("", 0, 7);
  answer.end();
  const Json out = *parse_body(answer->document());
  EXPECT_EQ(out["choices"][0]["message"]["content"], "\xc3\xa9");
  const Json& content = out["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 3u);
  EXPECT_EQ(content[0]["bytes"], Json::array({0xc3}));
  EXPECT_EQ(content[0]["token"], "\xef\xbf\xbd");
  EXPECT_EQ(content[1]["bytes"], Json::array({0xa9}));
  EXPECT_EQ(content[2]["token"], "<|end|>");
  EXPECT_EQ(content[2]["top_logprobs"][1]["token"], "<|end|>");
}

TEST(OpenaiResponse, TimingsAreInDocumentsAndOnRequestInEachChunk) {
  GenerateRequest request = completion();
  request.n = 2;
  Answer whole(request);
  for (const int32_t index : {0, 1}) {
    whole.piece("a", index);
    whole.end(index);
  }
  const Json out = *parse_body(whole->document());
  EXPECT_EQ(out["system_fingerprint"].get<std::string>().substr(0, 7), "sluice-");
  EXPECT_EQ(out["usage"]["prompt_tokens"], 4);
  const Json& timings = out["timings"];
  EXPECT_EQ(timings["cache_n"], 1);
  EXPECT_EQ(timings["prompt_n"], 3);
  EXPECT_EQ(timings["prompt_per_second"], 500.0);
  EXPECT_EQ(timings["predicted_n"], 4);
  EXPECT_EQ(timings["predicted_per_second"], 1000.0);
  for (const bool each : {false, true}) {
    request.n = 1;
    request.stream = true;
    request.timings_per_token = each;
    Answer stream(request);
    stream.piece("a");
    stream.end();
    const std::vector<Json> chunks = parse(stream->take_frames());
    ASSERT_EQ(chunks.size(), 2u);
    EXPECT_EQ(chunks[0].contains("timings"), each);
    EXPECT_EQ(chunks[1]["timings"]["predicted_n"], 2);
  }
}

TEST(OpenaiResponse, EveryErrorHasTheSameMembers) {
  const Json error = *parse_body(error_body({429, "busy", "", "rate_limit_exceeded"}));
  EXPECT_EQ(error["error"]["message"], "busy");
  EXPECT_EQ(error["error"]["type"], "rate_limit_error");
  EXPECT_TRUE(error["error"]["param"].is_null());
  EXPECT_EQ(error["error"]["code"], "rate_limit_exceeded");
  const Json plain = *parse_body(error_body({.message = "no", .param = "n"}));
  EXPECT_EQ(plain["error"]["type"], "invalid_request_error");
  EXPECT_EQ(plain["error"]["param"], "n");
  EXPECT_EQ(plain["error"]["code"], "INVALID_ARGUMENT");
  EXPECT_EQ((*parse_body(error_body({403, "", "", "x"})))["error"]["type"], "permission_error");
  EXPECT_EQ((*parse_body(error_body({404, "", "", "x"})))["error"]["type"], "not_found_error");
  EXPECT_EQ((*parse_body(error_body({503, "", "", "x"})))["error"]["type"], "server_error");
}

TEST(OpenaiResponse, EmbeddingsAreNumbersOrBase64) {
  const std::vector<float> values = {0.5f, -1.f, 0.1f, 1e-10f};
  const Vectors vectors = {values, 2, 3};
  const Json plain = *parse_body(embeddings_body(vectors, "m", false));
  ASSERT_EQ(plain["data"].size(), 2u);
  EXPECT_EQ(plain["data"][1]["embedding"][0].get<float>(), 0.1f);
  EXPECT_EQ(plain["data"][1]["embedding"][1].get<float>(), 1e-10f);
  EXPECT_EQ(plain["data"][1]["index"], 1);
  EXPECT_EQ(plain["usage"]["prompt_tokens"], 3);
  const Json coded = *parse_body(embeddings_body(vectors, "m", true));
  EXPECT_EQ(coded["data"][0]["embedding"], "AAAAPwAAgL8=");
}

TEST(OpenaiResponse, RerankListsTheBestDocumentsFirst) {
  RerankRequest request;
  request.documents = {"a", "b", "c"};
  request.return_documents = true;
  const std::vector<float> scores = {-1.f, 2.f, 0.5f};
  const Vectors vectors = {scores, 1, 12};
  Json out = *parse_body(rerank_body(vectors, request, "m"));
  ASSERT_EQ(out["results"].size(), 3u);
  EXPECT_EQ(out["results"][0]["index"], 1);
  EXPECT_EQ(out["results"][0]["relevance_score"], 2.0);
  EXPECT_EQ(out["results"][0]["document"]["text"], "b");
  EXPECT_EQ(out["results"][2]["index"], 0);
  EXPECT_EQ(out["usage"]["total_tokens"], 12);
  request.top_n = 1;
  request.tei = true;
  out = *parse_body(rerank_body(vectors, request, "m"));
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0]["index"], 1);
  EXPECT_EQ(out[0]["score"], 2.0);
  EXPECT_EQ(out[0]["text"], "b");
}

TEST(OpenaiResponse, PiecesOfTokensAreTextOrBytes) {
  const std::vector<Token> tokens = {1, 2};
  EXPECT_EQ(tokenize_body(tokens, nullptr), R"({"tokens":[1,2]})");
  EXPECT_EQ(tokenize_body(tokens, [](Token token) { return token == 1 ? "a" : "\xc3"; }),
            R"({"tokens":[{"id":1,"piece":"a"},{"id":2,"piece":[195]}]})");
}

}  // namespace
}  // namespace sluice::openai

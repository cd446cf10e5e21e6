// Responses of the OpenAI-compatible API, and the channel that delivers them.
#include "serve/response.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <cmath>
#include <cstring>
#include <utility>

#include "../paths.h"
#include "native/model_file.h"

namespace sluice::serve {
namespace {

class ServeResponse : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const std::string model =
        sluice::test::source_dir() + "/examples/models/sluice-tales-Q8_0.gguf";
    Result<native::ModelHeader> header = native::read_header(model, {});
    ASSERT_TRUE(header.ok()) << header.status().message();
    tokenizer_ = std::move(*tokenizer::Tokenizer::create(header->header));
  }
  static std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;

  static Event piece(const std::string& text, int32_t index = 0) {
    Event event;
    event.kind = Event::Kind::kPiece;
    event.index = index;
    event.piece = {.token = 5, .text = text, .logprob = -0.5f, .top = {{5, -0.5f}, {6, -1.f}}};
    return event;
  }
  // How to read the response to this prompt.
  static chat::AnswerPlan plan_for(const char* prompt) {
    chat::Prompt rendered;
    rendered.pieces.push_back({prompt, false});
    return *chat::AnswerFormat("<think>", {}).plan({}, rendered);
  }
  static Event end(int32_t index = 0) {
    Event event;
    event.kind = Event::Kind::kAnswered;
    event.index = index;
    event.finish = generate::Finish::kStop;
    event.counts.prompt = 4;
    event.counts.cached = 1;
    event.counts.generated = 2;
    return event;
  }
  // The JSON values of a stream's frames.
  static std::vector<Json> parse(const std::string& frames) {
    std::vector<Json> out;
    for (size_t at = 0; at < frames.size();) {
      EXPECT_EQ(frames.substr(at, 6), "data: ");
      const size_t end = frames.find("\n\n", at);
      Result<Json> value = parse_body(frames.substr(at + 6, end - at - 6));
      EXPECT_TRUE(value.ok());
      out.push_back(*value);
      at = end + 2;
    }
    return out;
  }
};
std::shared_ptr<const tokenizer::Tokenizer> ServeResponse::tokenizer_;

TEST_F(ServeResponse, AChatIsOneDocument) {
  GenerateRequest request;
  request.chat = true;
  request.options.logprobs = 2;
  const chat::AnswerPlan plan = plan_for("Hi");
  ApiResponse answer(request, *tokenizer_, "m", &plan);
  for (const char* text : {"<thi", "nk>why", "</think>\n\nbe", "cause"}) answer.push(piece(text));
  answer.push(end());
  const Json out = *parse_body(answer.document());
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

TEST_F(ServeResponse, AChatStreams) {
  GenerateRequest request;
  request.chat = request.stream = request.include_usage = true;
  request.n = 2;
  const chat::AnswerPlan plan = plan_for("Hi<think>");
  ApiResponse answer(request, *tokenizer_, "m", &plan);
  std::string frames = answer.take_frames();
  for (const int32_t index : {0, 1}) {
    answer.push(piece("hm</think>ye", index));
    answer.push(piece("s", index));
    answer.push(end(index));
    frames += answer.take_frames();
  }
  frames += answer.usage_frame();
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

TEST_F(ServeResponse, ACompletionListsItsTokens) {
  GenerateRequest request;
  request.prompts.resize(1);
  request.options.logprobs = 2;
  ApiResponse answer(request, *tokenizer_, "m", nullptr);
  answer.push(piece("h\xc3\xa9"));
  answer.push(piece("y"));
  answer.push(end());
  const Json out = *parse_body(answer.document());
  EXPECT_EQ(out["object"], "text_completion");
  const Json& choice = out["choices"][0];
  EXPECT_EQ(choice["text"], "h\xc3\xa9y");
  EXPECT_EQ(choice["logprobs"]["tokens"][1], "y");
  EXPECT_EQ(choice["logprobs"]["text_offset"][1], 2);
  EXPECT_EQ(choice["logprobs"]["token_logprobs"][0], -0.5);
  EXPECT_EQ(choice["logprobs"]["top_logprobs"][0].size(), 2u);
}

TEST_F(ServeResponse, PostSamplingProbsHaveLlamaServersFormat) {
  for (const bool chat : {true, false}) {
    GenerateRequest request;
    request.chat = chat;
    if (!chat) request.prompts.resize(1);
    request.options.logprobs = 2;
    request.options.post_sampling_probs = true;
    ApiResponse answer(request, *tokenizer_, "m", nullptr);
    answer.push(piece("h\xc3\xa9"));
    answer.push(end());
    const Json out = *parse_body(answer.document());
    const Json& entry = out["choices"][0]["logprobs"]["content"][0];
    EXPECT_EQ(entry["id"], 5);
    EXPECT_EQ(entry["token"], "h\xc3\xa9");
    EXPECT_EQ(entry["bytes"].size(), 3u);
    EXPECT_NEAR(entry["prob"].get<double>(), std::exp(-0.5), 1e-9);
    EXPECT_EQ(entry["top_probs"].size(), 2u);
    EXPECT_EQ(entry["top_probs"][1]["id"], 6);
    EXPECT_NEAR(entry["top_probs"][1]["prob"].get<double>(), std::exp(-1.), 1e-9);
    EXPECT_FALSE(entry.contains("logprob") || entry.contains("top_logprobs"));
  }
}

// Several tokens may have one text, and JSON one member of that name.
TEST_F(ServeResponse, OfTokensWithOneTextTheLikeliestCounts) {
  GenerateRequest request;
  request.prompts.resize(1);
  request.options.logprobs = 2;
  ApiResponse answer(request, *tokenizer_, "m", nullptr);
  Event event = piece("a");
  event.piece.top = {{5, -0.5f}, {5, -3.f}};
  answer.push(event);
  answer.push(end());
  const Json out = *parse_body(answer.document());
  const Json& top = out["choices"][0]["logprobs"]["top_logprobs"][0];
  ASSERT_EQ(top.size(), 1u);
  EXPECT_EQ(top.front(), -0.5);
}

TEST_F(ServeResponse, ErrorsAndEmbeddingsHaveOpenAiShapes) {
  const Json error = *parse_body(error_body({429, "busy", "", "rate_limit_exceeded"}));
  EXPECT_EQ(error["error"]["message"], "busy");
  EXPECT_EQ(error["error"]["type"], "rate_limit_error");
  EXPECT_TRUE(error["error"]["param"].is_null());
  EXPECT_EQ(error["error"]["code"], "rate_limit_exceeded");
  Job job;
  job.tokens = {1, 2, 3};
  job.ends = {1, 3};
  job.width = 2;
  job.vectors = {0.5f, -1.f, 0.1f, 1e-10f};
  const Json plain = *parse_body(embeddings_body(job, "m", false));
  ASSERT_EQ(plain["data"].size(), 2u);
  EXPECT_EQ(plain["data"][1]["embedding"][0].get<float>(), 0.1f);
  EXPECT_EQ(plain["data"][1]["embedding"][1].get<float>(), 1e-10f);
  EXPECT_EQ(plain["data"][1]["index"], 1);
  EXPECT_EQ(plain["usage"]["prompt_tokens"], 3);
  const Json coded = *parse_body(embeddings_body(job, "m", true));
  EXPECT_EQ(coded["data"][0]["embedding"], "AAAAPwAAgL8=");
}

bool readable(const Channel& channel) {
  pollfd one = {channel.descriptor(), POLLIN, 0};
  return ::poll(&one, 1, 0) == 1;
}

Event long_event() {
  Event event;
  event.kind = Event::Kind::kPiece;
  event.piece.text.assign(Channel::kMaxBytes / 3, 'x');
  return event;
}

TEST(ServeChannel, DeliversEventsInOrderAndSignalsThem) {
  Channel channel;
  ASSERT_TRUE(channel.usable());
  EXPECT_FALSE(readable(channel));
  for (int32_t i = 0; i < 3; ++i) ASSERT_TRUE(channel.push({.index = i}));
  Event event;
  for (int32_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(readable(channel));
    ASSERT_TRUE(channel.pop(&event));
    EXPECT_EQ(event.index, i);
  }
  EXPECT_FALSE(readable(channel));
  EXPECT_FALSE(channel.pop(&event));
}

TEST(ServeChannel, HoldsNoMoreThanItsByteLimit) {
  Channel channel;
  ASSERT_TRUE(channel.push(long_event()));
  ASSERT_TRUE(channel.push(long_event()));
  Event third = long_event();
  EXPECT_FALSE(channel.push(std::move(third)));
  EXPECT_EQ(third.piece.text.size(), Channel::kMaxBytes / 3);  // still owned by the caller
  Event event;
  EXPECT_TRUE(channel.pop(&event));
  EXPECT_TRUE(channel.push(std::move(third)));
  // A client that disconnects blocks nobody.
  channel.leave();
  EXPECT_TRUE(channel.push(long_event()));
  EXPECT_TRUE(channel.left());
}

// The engine's thread gives up readers that do not read. They must not wait for the rest.
TEST(ServeChannel, WakesItsReaderWhenItIsLeft) {
  Channel channel;
  Event event;
  ASSERT_TRUE(channel.push({}));
  ASSERT_TRUE(channel.pop(&event));
  EXPECT_FALSE(readable(channel));
  channel.leave();
  EXPECT_TRUE(readable(channel));
  EXPECT_FALSE(channel.pop(&event));
}

}  // namespace
}  // namespace sluice::serve

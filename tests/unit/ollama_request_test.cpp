// Requests as Ollama's clients write them, and what the check makes of them.
#include <gtest/gtest.h>

#include "ollama/request.h"

namespace sluice::ollama {
namespace {

using openai::EmbeddingRequest;
using openai::GenerateRequest;
using openai::Problem;

GenerateRequest chat(const std::string& body) {
  GenerateRequest out;
  const Problem problem = ollama::read_chat(body, &out);
  EXPECT_FALSE(problem) << problem->message;
  return out;
}

GenerateRequest generate(const std::string& body) {
  GenerateRequest out;
  const Problem problem = ollama::read_generate(body, &out);
  EXPECT_FALSE(problem) << problem->message;
  return out;
}

const std::string kHi = R"("messages":[{"role":"user","content":"Hi"}])";

TEST(OllamaRequest, ReadsAChat) {
  const GenerateRequest request = chat(R"({"model":"any:latest",)" + kHi + R"(,"keep_alive":"5m",
    "options":{"temperature":0.25,"top_k":3,"top_p":0.5,"min_p":0.125,"seed":18446744073709551615,
      "num_predict":12,"stop":["\n","END"],"repeat_penalty":1.5,"repeat_last_n":8,
      "presence_penalty":0.5,"frequency_penalty":-0.5,"num_ctx":99999,"num_gpu":1,"mirostat":0,
      "tfs_z":1,"typical_p":1.0,"num_keep":null},
    "tools":[{"type":"function","function":{"name":"f","parameters":{"n":12345678901234567890}}}],
    "logprobs":true,"top_logprobs":2})");
  EXPECT_TRUE(request.chat && request.stream);
  const generate::Options& o = request.options;
  EXPECT_EQ(o.sampling.temperature, 0.25f);
  EXPECT_EQ(o.sampling.top_k, 3);
  EXPECT_EQ(o.sampling.top_p, 0.5f);
  EXPECT_EQ(o.sampling.min_p, 0.125f);
  EXPECT_EQ(o.sampling.seed, ~0ull);
  EXPECT_EQ(o.sampling.repeat_penalty, 1.5f);
  EXPECT_EQ(o.sampling.penalty_last_n, 8);
  EXPECT_EQ(o.sampling.presence_penalty, 0.5f);
  EXPECT_EQ(o.sampling.frequency_penalty, -0.5f);
  EXPECT_EQ(o.max_tokens, 12);
  EXPECT_EQ(o.stop, (std::vector<std::string>{"\n", "END"}));
  EXPECT_EQ(o.logprobs, 2);
  EXPECT_NE(request.tools.find("12345678901234567890"), std::string::npos);
  EXPECT_FALSE(chat("{" + kHi + R"(,"stream":false})").stream);
}

TEST(OllamaRequest, MessagesKeepTheirTextAndNameTheirTools) {
  EXPECT_EQ(chat("{" + kHi + "}").messages, R"([{"role":"user","content":"Hi"}])");
  const GenerateRequest request = chat(R"({"messages":[{"role":"user","content":"x","images":[]},
    {"role":"assistant","content":"","thinking":"hm","tool_calls":[{"function":{"name":"f",
      "arguments":{"n": 123456789012345678901234, "x": 1e40}}}]},
    {"role":"tool","content":"4","tool_name":"f"}]})");
  EXPECT_EQ(request.messages, R"([{"role":"user","content":"x"},)"
                              R"({"role":"assistant","content":"","thinking":"hm","tool_calls":)"
                              "[{\"function\":{\"name\":\"f\",\n      "
                              R"("arguments":{"n": 123456789012345678901234, "x": 1e40}}}]},)"
                              R"({"role":"tool","content":"4","name":"f"}])");
}

TEST(OllamaRequest, LimitsAndSeedsThatMeanNone) {
  for (const char* n : {"-2", "-1", "0", "null"}) {
    const GenerateRequest request =
        chat("{" + kHi + R"(,"options":{"seed":-1,"num_predict":)" + n + "}}");
    EXPECT_EQ(request.options.max_tokens, -1) << n;
    EXPECT_EQ(request.options.sampling.seed, 0u);  // the caller's default
  }
  EXPECT_EQ(generate(R"({"prompt":"x","raw":true})").options.max_tokens, -1);
}

TEST(OllamaRequest, ThinkBecomesVariablesOfTheTemplate) {
  EXPECT_EQ(chat("{" + kHi + "}").variables, "");
  EXPECT_EQ(chat("{" + kHi + R"(,"think":false})").variables,
            R"({"enable_thinking":false,"thinking":false})");
  EXPECT_EQ(chat("{" + kHi + R"(,"think":"low"})").variables,
            R"({"reasoning_effort":"low","enable_thinking":true,"thinking":true})");
}

TEST(OllamaRequest, FormatIsASchema) {
  using grammar::Kind;
  EXPECT_FALSE(chat("{" + kHi + R"(,"format":""})").options.constraint);
  const auto any = chat("{" + kHi + R"(,"format":"json"})").options.constraint;
  ASSERT_TRUE(any);
  EXPECT_EQ(any->kind, Kind::kJsonSchema);
  EXPECT_EQ(any->text, R"({"type":"object"})");
  const auto one = generate(R"({"prompt":"x","format":{"const":12345678901234567890}})");
  EXPECT_EQ(one.options.constraint->text, R"({"const":12345678901234567890})");
}

TEST(OllamaRequest, GenerateIsAChatATextOrAGap) {
  const GenerateRequest asked = generate(R"({"prompt":"Hi \u00e9","system":"Be brief."})");
  EXPECT_TRUE(asked.chat && asked.stream);
  EXPECT_EQ(asked.messages, R"([{"role":"system","content":"Be brief."},)"
                            R"({"role":"user","content":"Hi \u00e9"}])");
  const GenerateRequest raw =
      generate(R"({"prompt":"<s>Hi","raw":true,"logprobs":true,"top_logprobs":3})");
  EXPECT_FALSE(raw.chat);
  ASSERT_EQ(raw.prompts.size(), 1u);
  EXPECT_EQ(raw.prompts[0].text, "<s>Hi");
  EXPECT_EQ(raw.options.logprobs, 3);
  const GenerateRequest gap = generate(R"~({"prompt":"a = ","suffix":"\n(a)"})~");
  EXPECT_FALSE(gap.chat);
  EXPECT_TRUE(gap.prompts.empty());
  ASSERT_TRUE(gap.infill);
  EXPECT_EQ(gap.infill->prefix, "a = ");
  EXPECT_EQ(gap.infill->suffix, "\n(a)");
}

TEST(OllamaRequest, WithoutPromptTheModelIsLoaded) {
  EXPECT_EQ(generate(R"({"model":"m"})").prompt_count(), 0u);
  EXPECT_EQ(generate(R"({"prompt":"","system":"x"})").prompt_count(), 0u);
  EXPECT_EQ(chat(R"({"model":"m","messages":[]})").prompt_count(), 0u);
}

TEST(OllamaRequest, ErrorsNameTheField) {
  const std::pair<const char*, const char*> kChats[] = {
      {R"("options":5)", "options"},
      {R"("options":{"temperature":"x"})", "temperature"},
      {R"("options":{"num_predict":1.5})", "num_predict"},
      {R"("options":{"typical_p":0.5})", "typical_p"},
      {R"("options":{"mirostat":2})", "mirostat"},
      {R"("options":{"surprise":2})", "surprise"},
      {R"("format":5)", "format"},
      {R"("format":"xml")", "format"},
      {R"("think":"never")", "think"},
      {R"("stream":"x")", "stream"},
      {R"("logprobs":5)", "logprobs"},
      {R"("top_logprobs":99)", "top_logprobs"},
      {R"("tools":{})", "tools"},
      {R"("surprise":1)", "surprise"},
      {R"("messages":5)", "messages"},
      {R"("messages":[5])", "messages"},
      {R"("messages":[{"role":"user","content":"x","images":5}])", "images"},
      {R"("messages":[{"role":"user","content":"x","images":[5]}])", "images"},
      {R"("messages":[{"images":[],"content":5,"role":"user"}])", "messages"}};
  for (const auto& [members, param] : kChats) {
    GenerateRequest request;
    const Problem problem = ollama::read_chat("{" + kHi + "," + members + "}", &request);
    ASSERT_TRUE(problem) << members;
    EXPECT_EQ(problem->param, param) << members << ": " << problem->message;
    EXPECT_EQ(problem->status, 400);
  }
  const std::pair<const char*, const char*> kTexts[] = {
      {R"("prompt":5)", "prompt"},
      {R"("suffix":5)", "suffix"},
      {R"("template":"{{x}}")", "template"},
      {R"("context":[1])", "context"},
      {R"("images":["aGk="],"prompt":"x","raw":true)", "images"},
      {R"("images":"aGk=")", "images"},
      {R"("raw":1)", "raw"}};
  for (const auto& [members, param] : kTexts) {
    GenerateRequest request;
    const Problem problem =
        ollama::read_generate(R"({"model":"m",)" + std::string(members) + "}", &request);
    ASSERT_TRUE(problem) << members;
    EXPECT_EQ(problem->param, param) << members << ": " << problem->message;
  }
  GenerateRequest request;
  for (const char* body : {"", "5", "[]", "{", R"({"prompt":)"}) {
    EXPECT_TRUE(ollama::read_chat(body, &request)) << body;
    EXPECT_TRUE(ollama::read_generate(body, &request)) << body;
    EXPECT_TRUE(read_show(body)) << body;
  }
}

TEST(OllamaRequest, Embeddings) {
  EmbeddingRequest many, one, whole;
  EXPECT_FALSE(
      ollama::read_embed(R"({"model":"m","input":["a","b"],"dimensions":4,"options":{}})", &many));
  EXPECT_EQ(many.inputs.size(), 2u);
  EXPECT_EQ(many.options.dimensions, 4);
  EXPECT_EQ(many.truncate, -1);
  EXPECT_FALSE(ollama::read_embed(R"({"input":"a","truncate":false})", &whole));
  EXPECT_EQ(whole.truncate, 0);
  EXPECT_FALSE(ollama::read_embeddings(R"({"model":"m","prompt":"a","keep_alive":0})", &one));
  ASSERT_EQ(one.inputs.size(), 1u);
  EXPECT_EQ(one.inputs[0].text, "a");
  EXPECT_EQ(ollama::read_embed("{}", &one)->param, "input");
  EXPECT_EQ(ollama::read_embed(R"({"input":5})", &one)->param, "input");
  EXPECT_EQ(ollama::read_embeddings("{}", &one)->param, "prompt");
  EXPECT_EQ(ollama::read_embeddings(R"({"prompt":["a"]})", &one)->param, "prompt");
}

}  // namespace
}  // namespace sluice::ollama

// llama-server's /infill and /completion: requests, prompts and responses.
#include <gtest/gtest.h>

#include "openai/infill.h"
#include "openai/llama_completion.h"

namespace sluice::openai {
namespace {

InfillTokens qwen() {
  InfillTokens out;
  find_infill_tokens(
      [](std::string_view name) {
        return name.starts_with("<|fim_") || name == "<|repo_name|>" || name == "<|file_sep|>";
      },
      &out);
  return out;
}

TEST(Infill, TheTokensOfAVocabulary) {
  const InfillTokens found = qwen();
  EXPECT_TRUE(found.usable());
  EXPECT_EQ(found.prefix, "<|fim_prefix|>");
  EXPECT_EQ(found.repository, "<|fim_repo|>");
  InfillTokens given;
  given.prefix = "<begin>";
  find_infill_tokens([](std::string_view name) { return name == "<SUF>"; }, &given);
  EXPECT_EQ(given.prefix, "<begin>");
  EXPECT_EQ(given.suffix, "<SUF>");
  EXPECT_FALSE(given.usable());
  chat::Prompt prompt;
  const Problem problem = infill_prompt(given, {}, &prompt);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->code, "NOT_SUPPORTED");
}

TEST(Infill, ThePromptMarksItsParts) {
  Infill infill{.prefix = "a = <|fim_suffix|>", .suffix = "\nend", .prompt = "1"};
  chat::Prompt prompt;
  ASSERT_FALSE(infill_prompt(qwen(), infill, &prompt));
  EXPECT_TRUE(prompt.add_special);
  EXPECT_EQ(prompt.text(), "<|fim_prefix|>a = <|fim_suffix|>1<|fim_suffix|>\nend<|fim_middle|>");
  EXPECT_TRUE(prompt.pieces[1].content);  // what it spells is not a token
  infill.files = {{"b.py", "x"}, {"c.py", "y"}};
  chat::Prompt several;
  ASSERT_FALSE(infill_prompt(qwen(), infill, &several));
  EXPECT_TRUE(several.text().starts_with(
      "<|fim_repo|>myproject\n<|file_sep|>b.py\nx<|file_sep|>c.py\ny<|file_sep|>filename\n"
      "<|fim_prefix|>a = "))
      << several.text();
}

TEST(Infill, Requests) {
  GenerateRequest request;
  const Problem problem = read_infill(
      R"({"input_prefix":"a","input_suffix":"b","prompt":"c","n_predict":7,"id_slot":1,
          "input_extra":[{"filename":"f","text":"t"},{"text":"u"}],"samplers":["top_k","infill"],
          "top_k":40,"t_max_predict_ms":500,"response_fields":["content"],"stream":true,
          "typical_p":1.0,"dry_multiplier":0,"return_tokens":true,"cache_prompt":true})",
      &request);
  ASSERT_FALSE(problem) << problem->message;
  ASSERT_TRUE(request.infill);
  EXPECT_TRUE(request.prompts.empty() && request.stream && request.return_tokens);
  EXPECT_EQ(request.infill->prefix + request.infill->prompt + request.infill->suffix, "acb");
  ASSERT_EQ(request.infill->files.size(), 2u);
  EXPECT_EQ(request.infill->files[0].name, "f");
  EXPECT_EQ(request.infill->files[1].text, "u");
  EXPECT_EQ(request.options.max_tokens, 7);
  const std::pair<const char*, const char*> kWrong[] = {
      {R"({"input_suffix":"b"})", "input_prefix"},
      {R"({"input_prefix":"b"})", "input_suffix"},
      {R"({"input_prefix":5,"input_suffix":"b"})", "input_prefix"},
      {R"({"input_prefix":"","input_suffix":"","input_extra":["x"]})", "input_extra"},
      {R"({"input_prefix":"","input_suffix":"","input_extra":{"text":"x"}})", "input_extra"},
      {R"({"input_prefix":"","input_suffix":"","prompt":["x"]})", "prompt"},
      {R"({"input_prefix":"","input_suffix":"","mirostat":2})", "mirostat"},
      {R"({"input_prefix":"","input_suffix":"","typical_p":0.5})", "typical_p"},
      {R"({"input_prefix":"","input_suffix":"","surprise":2})", "surprise"},
      {R"({"input_prefix":"","input_suffix":"","temperature":-1})", "temperature"}};
  for (const auto& [body, param] : kWrong) {
    GenerateRequest wrong;
    const Problem why = read_infill(body, &wrong);
    ASSERT_TRUE(why) << body;
    EXPECT_EQ(why->param, param) << why->message;
  }
  GenerateRequest plain, limited;
  ASSERT_FALSE(read_llama_completion(R"({"prompt":"x"})", &plain));
  EXPECT_EQ(plain.options.max_tokens, -1);
  ASSERT_FALSE(read_llama_completion(R"({"prompt":[1,2],"max_tokens":3})", &limited));
  EXPECT_EQ(limited.options.max_tokens, 3);
}

TEST(Infill, CompletionsWithASuffix) {
  GenerateRequest request, none;
  ASSERT_FALSE(read_completion(R"({"prompt":"a","suffix":"b","n":2})", &request));
  ASSERT_TRUE(request.infill);
  EXPECT_EQ(request.infill->prefix + "_" + request.infill->suffix, "a_b");
  EXPECT_EQ(request.prompt_count(), 1u);
  ASSERT_FALSE(read_completion(R"({"prompt":["a","b"],"suffix":""})", &none));
  EXPECT_EQ(none.prompt_count(), 2u);
  for (const char* prompt : {"[\"a\",\"b\"]", "[1,2]"}) {
    GenerateRequest wrong;
    const Problem why =
        read_completion(R"({"suffix":"b","prompt":)" + std::string(prompt) + "}", &wrong);
    ASSERT_TRUE(why);
    EXPECT_EQ(why->param, "suffix");
  }
}

TEST(Infill, DropsFilesFromTheFirst) {
  Infill infill;
  for (const char* name : {"a", "b", "c"}) infill.files.push_back({name, ""});
  drop_files(&infill);
  ASSERT_EQ(infill.files.size(), 1u);
  EXPECT_EQ(infill.files[0].name, "c");
  drop_files(&infill);
  EXPECT_TRUE(infill.files.empty());
}

// Feeds two tokens.
void feed(LlamaCompletion* out) {
  generate::Counts counts;
  counts.prompt = 3;
  for (const char* text : {"re", "turn\n"}) {
    generate::Piece piece;
    piece.token = 7;
    piece.text = piece.bytes = text;
    piece.logprob = -0.25f;
    piece.top = {{7, -0.25f}};
    ++counts.generated;
    out->push(0, piece, counts);
  }
  out->set_stop_string("END");
  out->end(0, generate::Finish::kStop, counts);
}

GenerateRequest with_logprobs(bool stream) {
  GenerateRequest request;
  request.infill.emplace();
  request.stream = stream;
  request.return_tokens = true;
  request.options.logprobs = 1;
  return request;
}

std::string no_bytes(Token) {
  return "x";
}

TEST(LlamaCompletion, Document) {
  const GenerateRequest request = with_logprobs(false);
  LlamaCompletion response(request, no_bytes, "m", nullptr);
  feed(&response);
  const Json out = *parse_body(response.document());
  EXPECT_EQ(out["content"], "return\n");
  EXPECT_EQ(out["tokens"], Json::array({7, 7}));
  EXPECT_EQ(out["stop"], true);
  EXPECT_EQ(out["stop_type"], "word");
  EXPECT_EQ(out["stopping_word"], "END");
  EXPECT_EQ(out["has_new_line"], true);
  EXPECT_EQ(out["tokens_predicted"], 2);
  EXPECT_EQ(out["tokens_evaluated"], 3);
  EXPECT_EQ(out["completion_probabilities"][0]["id"], 7);
  EXPECT_EQ(out["completion_probabilities"][0]["top_logprobs"][0]["logprob"], -0.25);
  EXPECT_TRUE(out["timings"].contains("predicted_per_second"));
}

TEST(LlamaCompletion, Stream) {
  const GenerateRequest request = with_logprobs(true);
  LlamaCompletion response(request, no_bytes, "m", nullptr);
  feed(&response);
  const std::string text = response.take_frames() + response.last_frames();
  std::vector<Json> frames;
  for (size_t at = 0; at < text.size();) {
    EXPECT_EQ(text.substr(at, 6), "data: ");
    const size_t end = text.find("\n\n", at);
    frames.push_back(*parse_body(text.substr(at + 6, end - at - 6)));
    at = end + 2;
  }
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_EQ(frames[1]["content"], "turn\n");
  EXPECT_EQ(frames[1]["stop"], false);
  EXPECT_EQ(frames[1]["tokens_predicted"], 2);
  EXPECT_EQ(frames[2]["content"], "");
  EXPECT_EQ(frames[2]["stop"], true);
  EXPECT_EQ(frames[2]["has_new_line"], true);
}

}  // namespace
}  // namespace sluice::openai

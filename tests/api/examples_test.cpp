// The programs of examples/native, built with the tests' own flags, so under sanitizers too.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "../paths.h"
#include "../scripted_model.h"
#include "api_util.h"

namespace sluice::test {
namespace {

struct Ran {
  int code = -1;
  std::string out;
};

Ran run(const std::string& command) {
  Ran ran;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return ran;
  std::array<char, 4096> part;
  while (const size_t n = fread(part.data(), 1, part.size(), pipe)) ran.out.append(part.data(), n);
  ran.code = pclose(pipe);
  return ran;
}

TEST(ApiExamples, GenerateTheStory) {
  const Engine engine = load();
  sluice_sampling sampling;
  expect_ok(sluice_sampling_default(&sampling, sizeof sampling));
  sampling.seed = 7;
  sluice_generate_options options;
  expect_ok(sluice_generate_options_default(&options, sizeof options));
  options.sampling = &sampling;
  options.max_tokens = 40;
  const std::string prompt = "Once upon a time";
  const Answer expected = answer(create(engine), prompt, options);

  const std::string story = "'" + program_path("tests/example_story") + "' ";
  const Ran told = run(story + kSample + " '" + prompt + "' 1000000 40 2>&1 >/dev/null");
  EXPECT_EQ(told.code, 0) << told.out;
  EXPECT_NE(told.out.find("of a budget of 1000000"), std::string::npos) << told.out;
  const Ran text = run(story + kSample + " '" + prompt + "' 1000000 40 7 2>/dev/null");
  EXPECT_EQ(text.out, prompt + expected.text + "\n");
  const Ran refused = run(story + kSample + " '" + prompt + "' 1000 2>&1");
  EXPECT_NE(refused.code, 0);
  EXPECT_NE(refused.out.find("BUDGET_TOO_SMALL"), std::string::npos) << refused.out;
}

TEST(ApiExamples, ChatWithATool) {
  const std::string model = testing::TempDir() + "sluice-example-chat.gguf";
  ScriptedModel{.chat_template =
                    "{% for m in messages %}{{ m.content }}{% endfor %}"
                    "{{ tools | tojson }}{% if false %}<think></think><tool_call>"
                    "{\"name\": …}</tool_call>{% endif %}"
                    "{{ '<|told|>' if messages[-1].role == 'tool' else '<|ask|>' }}",
                .tool_template = {},
                .scripts = {{"<|ask|>",
                             {"<think>The clock.</think>", "<tool_call>\n{\"name\": \"get_time\", ",
                              "\"arguments\": {}}\n</tool_call>"}},
                            {"<|told|>", {"Now you", " know."}}},
                .controls = {}}
      .write(model);
  const std::string chat = "'" + program_path("tests/example_chat") + "' '" + model + "' ";
  const Ran talked = run("printf 'What \"time\"?\\nAgain\\n' | " + chat + "2>/dev/null");
  EXPECT_EQ(talked.code, 0);
  EXPECT_EQ(talked.out, "Now you know.\nNow you know.\n");
  const Ran told = run("echo Hello | " + chat + "2>&1 >/dev/null");
  EXPECT_EQ(told.out.substr(0, told.out.find(": ")), "The clock.[get_time({})") << told.out;
  const Ran refused = run("echo Hello | " + chat + "1000 2>&1");
  EXPECT_NE(refused.code, 0);
  EXPECT_NE(refused.out.find("BUDGET_TOO_SMALL"), std::string::npos) << refused.out;
  std::filesystem::remove(model);
}

TEST(ApiExamples, ReadAModelInsideAnotherFile) {
  const std::string archive = testing::TempDir() + "sluice-archive.bin";
  {
    std::ifstream model(kSample, std::ios::binary);
    std::ofstream out(archive, std::ios::binary);
    out << std::string(1000, 'x') << model.rdbuf();
  }
  const std::string reader = "'" + program_path("tests/example_reader") + "' '" + archive + "' ";
  const Ran told = run(reader + "1000 'Once upon a time' 2>&1");
  EXPECT_EQ(told.code, 0) << told.out;
  EXPECT_EQ(told.out.substr(0, 16), "Once upon a time");
  EXPECT_NE(told.out.find(" bytes read from the archive"), std::string::npos) << told.out;
  const Ran refused = run(reader + "999 'Once upon a time' 2>&1");
  EXPECT_NE(refused.code, 0);
  EXPECT_NE(refused.out.find("NOT_GGUF"), std::string::npos) << refused.out;
  std::filesystem::remove(archive);
}

}  // namespace
}  // namespace sluice::test

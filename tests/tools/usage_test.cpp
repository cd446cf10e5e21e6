// What the command line tells people: help with groups, defaults and examples; the names of
// llama.cpp and ollama; progress on a terminal.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "../paths.h"
#include "../sanitized.h"
#include "program_util.h"
#include "terminal.h"

namespace sluice::tools {
namespace {

const std::string kModel = sluice::test::source_dir() + "/tests/data/families/llama-biases.gguf";

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

class Usage : public ProgramTest {
 protected:
  [[nodiscard]] std::vector<std::string> commands() const {
    std::vector<std::string> names;
    const std::string help = run({"--help"}).out;
    const std::regex row("\\n(?:[A-Z][a-z]+| {7}) +([a-z]+) +[A-Z]");
    for (std::sregex_iterator at(help.begin(), help.end(), row), end; at != end; ++at) {
      names.push_back((*at)[1]);
    }
    return names;
  }
};

TEST_F(Usage, TheHelpFitsAScreen) {
  const Ran ran = run({"--help"});
  EXPECT_EQ(ran.status, 0);
  EXPECT_LE(lines_of(ran.out).size(), 24u) << ran.out;
  for (const std::string& line : lines_of(ran.out)) EXPECT_LE(line.size(), 80u) << line;
  EXPECT_GE(commands().size(), 16u) << ran.out;
  EXPECT_EQ(run({"help"}).out, ran.out);
  EXPECT_EQ(run({"help", "run"}).out, run({"run", "--help"}).out);
}

TEST_F(Usage, EachCommandHasAnExampleAndDefaults) {
  for (const std::string& command : commands()) {
    const Ran ran = run({command, "--help"});
    EXPECT_EQ(ran.status, 0) << command;
    EXPECT_NE(ran.out.find("\nExample: sluice " + command), std::string::npos) << ran.out;
    // An option begins a line; its help may be on the next one.
    const std::regex option("\n  (-[^\n]*(?:\n {10,}[^\n]*)?)");
    size_t count = 0;
    for (std::sregex_iterator at(ran.out.begin(), ran.out.end(), option), end; at != end; ++at) {
      const std::string text = (*at)[1];
      ++count;
      if (text.find("--help") != std::string::npos) continue;
      EXPECT_TRUE(text.find("default") != std::string::npos ||
                  text.find("REQUIRED") != std::string::npos ||
                  text.find("--model") != std::string::npos)
          << command << ": " << text;
    }
    EXPECT_GE(count, 2u) << ran.out;
  }
}

TEST_F(Usage, TakesTheNamesOfLlamaCppAndOllama) {
  const auto text = [this](std::vector<std::string> more) {
    more.insert(more.begin(), {"run", "--temp", "0", "-n", "4"});
    const Ran ran = run(more);
    EXPECT_EQ(ran.status, 0) << more[5] << ran.err;
    return ran.out;
  };
  const std::string expected = text({kModel, "abc"});
  for (const std::vector<std::string>& same : std::vector<std::vector<std::string>>{
           {"-m", kModel, "-p", "abc"},
           {"abc", "--model", kModel},
           {"-mu", kModel, "abc"},
           {kModel, "abc", "--predict", "4"},
           {kModel, "abc", "-s", "7"},
           {kModel, "abc", "-r", "nowhere"},
           {kModel, "abc", "-t", "1", "-c", "64"},
           {kModel, "abc", "--cache-type-k", "f16", "-ctv", "f16"},
           {kModel, "abc", "--jinja", "-cb", "--no-mmap", "--color", "--no-warmup", "-st"},
           {kModel, "abc", "--draft", "4", "-md", "ngram"},
           {kModel, "abc", "-no-cnv"}}) {
    if (same[0] == kModel && same.size() > 2 && same[2] == "--predict") {
      EXPECT_EQ(run({"run", "--temp", "0", kModel, "abc", "--predict", "4"}).out, expected);
      continue;
    }
    EXPECT_EQ(text(same), expected) << same[same.size() - 2];
  }
  EXPECT_EQ(run({"ls", "--cache-dir", at("cache")}).status, 0);
  EXPECT_EQ(run({"inspect", kModel}).status, 0);
  // A value is not a name.
  EXPECT_EQ(run({"run", kModel, "--stop", "-fa", "abc", "-n", "1"}).status, 0);
}

TEST_F(Usage, AnswersWhatItDoesOtherwise) {
  const auto answer = [this](const std::vector<std::string>& arguments) {
    const Ran ran = run(arguments);
    EXPECT_EQ(ran.status, 2) << arguments.back();
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    return ran.err;
  };
  for (const char* option : {"-ngl",
                             "--n-gpu-layers",
                             "-dev",
                             "-sm",
                             "-ts",
                             "-mg",
                             "-fa",
                             "-b",
                             "-ub",
                             "-tb",
                             "--mlock",
                             "--numa",
                             "--keep",
                             "--lora-scaled",
                             "-hff",
                             "-hft",
                             "--prompt-cache",
                             "--typical",
                             "--mirostat",
                             "--samplers",
                             "-l",
                             "--rope-scaling",
                             "--override-kv",
                             "-cnv",
                             "-i",
                             "-e",
                             "-sysf",
                             "-v",
                             "-a",
                             "--api-key-file",
                             "--reasoning-format",
                             "--reasoning-budget",
                             "--think",
                             "--format",
                             "--keepalive",
                             "--insecure"}) {
    const std::string said = answer({"run", kModel, "abc", option, "1"});
    EXPECT_EQ(said.find(std::string("sluice: ") + option + ": "), 0u) << said;
    EXPECT_EQ(said.find("is not an option"), std::string::npos) << said;
  }
  for (const char* command : {"ps", "stop", "create", "cp", "push"}) {
    EXPECT_EQ(answer({command, "x"}).find(std::string("sluice: sluice has no ") + command), 0u);
  }
  EXPECT_NE(answer({"run", kModel, "-np", "2", "abc"}).find("-np is not an option of run"),
            std::string::npos);
}

TEST_F(Usage, ATerminalShowsTotalRateAndTimeLeft) {
  if (test::kSanitized) GTEST_SKIP() << "takes a minute";
  std::string text;
  for (int i = 0; i < 200; ++i) text += "Once upon a time there was a little fox. ";
  std::ofstream(at("text")) << text;
  const std::vector<std::string> command = {
      test::program_path("sluice"),
      "perplexity",
      sluice::test::source_dir() + "/examples/models/sluice-tales-F16.gguf",
      "-f",
      at("text"),
      "--threads",
      "1",
      "--kernels",
      "scalar"};
  Terminal terminal(command);
  EXPECT_EQ(terminal.wait(), 0) << terminal.screen();
  EXPECT_TRUE(std::regex_search(
      terminal.screen(), std::regex("scoring: \\d+ of \\d+ tokens, \\d+ tokens/s, \\d+ s left")))
      << terminal.screen();
  std::ofstream(at("text")) << "Once upon a time";
  std::vector<std::string> quietly = command;
  quietly.emplace_back("--quiet");
  Terminal quiet(quietly);
  EXPECT_EQ(quiet.wait(), 0) << quiet.screen();
  EXPECT_EQ(quiet.screen().find("scoring"), std::string::npos) << quiet.screen();
  EXPECT_EQ(run({command.begin() + 1, command.end()}).err, "");  // no terminal
}

TEST_F(Usage, AsksForTextOnATerminal) {
  Terminal terminal({test::program_path("sluice"), "run", kModel, "-", "-n", "1", "--quiet"});
  ASSERT_TRUE(terminal.await("reading the text from this terminal; Ctrl-D ends it"))
      << terminal.screen();
  terminal.type("abc\n\004");
  EXPECT_EQ(terminal.wait(), 0) << terminal.screen();
}

}  // namespace
}  // namespace sluice::tools

// `sluice run` as people and scripts use it: its output and exit status, its options, and that a
// signal ends it whatever it is waiting for.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "../paths.h"
#include "../scripted_model.h"
#include "program.h"
#include "terminal.h"

namespace sluice::tools {
namespace {

const std::string kModel = sluice::test::source_dir() + "/examples/models/sluice-tales-Q8_0.gguf";

std::string greedy_text(std::vector<std::string> args) {
  args.insert(args.end(), {"--raw", "-p", "Once upon a time", "--temp", "0", "--json"});
  Program program(args);
  EXPECT_EQ(program.wait(), 0) << program.err();
  const nlohmann::json out = nlohmann::json::parse(program.out(), nullptr, false);
  return out.is_object() ? out["text"].get<std::string>() : "";
}

TEST(Run, StopTakesOneArgumentVerbatim) {
  const std::string text = greedy_text({kModel, "-n", "40"});
  std::istringstream words(text);
  std::string word;
  for (int i = 0; i < 5; ++i) words >> word;
  ASSERT_FALSE(word.empty());
  const std::string before = text.substr(0, text.find(word));
  EXPECT_EQ(greedy_text({kModel, "-n", "40", "--stop", word}), before);
  EXPECT_EQ(greedy_text({"-n", "40", "--stop", word, kModel}), before);
  EXPECT_EQ(greedy_text({kModel, "-n", "40", "--stop", "nowhere", "--stop", word}), before);
  EXPECT_EQ(greedy_text({kModel, "-n", "40", "--stop", "[" + word + "]"}), text);
  EXPECT_EQ(greedy_text({kModel, "-n", "40", "--stop", "[" + word + ",x]"}), text);
}

TEST(Run, SeedsAreAnyIntegerModuloTwoToThe64) {
  const auto text = [](const std::string& seed) {
    Program program({kModel, "-p", "Once", "-n", "40", "--temp", "2", "--seed", seed});
    EXPECT_EQ(program.wait(), 0) << program.err();
    return program.out();
  };
  EXPECT_EQ(text("-1"), text("18446744073709551615"));
  EXPECT_NE(text("-1"), text("-2"));
  EXPECT_NE(text("9007199254740993"), text("9007199254740992"));
}

TEST(Run, EchoesTheWholePrompt) {
  Program program({kModel, "--raw", "-p", "-", "-n", "0"});
  const std::string prompt("before\0after", 12);
  program.write_input(prompt);
  EXPECT_EQ(program.wait(), 0) << program.err();
  EXPECT_EQ(program.out(), prompt + "\n");
}

TEST(Run, LostOutputIsAnError) {
  for (const char* json : {"--json", "--threads=1"}) {
    Program program({kModel, "-p", "Once", "-n", "4", json}, "/dev/full");
    EXPECT_EQ(program.wait(), 1);
    EXPECT_NE(program.err().find("[IO]"), std::string::npos) << program.err();
    EXPECT_EQ(std::count(program.err().begin(), program.err().end(), '\n'), 1) << program.err();
  }
}

TEST(Run, ReportsErrorsInOneSentence) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"-p", "a", "-n", "-3"}, "INVALID_ARGUMENT"},
      {{"-p", "a", "-n", "99999999999"}, "INVALID_ARGUMENT"},
      {{"-p", ""}, "PROMPT_EMPTY"},
      {{"-p", "a", "--temp", "nan"}, "INVALID_ARGUMENT"},
      {{"-p", "a", "--temp", "-1"}, "INVALID_ARGUMENT"},
      {{"-p", "a", "--top-k", "-1"}, "INVALID_ARGUMENT"},
      {{"-p", "a", "--top-p", "1.5"}, "INVALID_ARGUMENT"},
      {{"-p", "a", "--seed", "1.5"}, "INVALID_ARGUMENT"},
      {{"-p", "a", "--seed", "18446744073709551616"}, "INVALID_ARGUMENT"},
      {{"-p", "a", "--stop", "b", "--stop", ""}, "INVALID_ARGUMENT"},
      {{"-p", "a", "--stop", std::string(5000, 'x')}, "INVALID_ARGUMENT"}};
  for (const auto& [options, code] : cases) {
    std::vector<std::string> args = {kModel};
    args.insert(args.end(), options.begin(), options.end());
    Program program(args);
    EXPECT_GT(program.wait(), 0) << options.back();
    EXPECT_EQ(program.out(), "") << options.back();
    EXPECT_NE(program.err().find("[" + code + "]"), std::string::npos) << program.err();
    EXPECT_EQ(std::count(program.err().begin(), program.err().end(), '\n'), 1) << program.err();
  }
}

TEST(Run, EndsAtASignalDuringPrefill) {
  for (const int signal : {SIGINT, SIGTERM}) {
    Program program({kModel, "-p", "-"});
    program.await_threads(2);  // its signal handlers are installed
    program.kill(signal);
    EXPECT_EQ(program.wait(), 130);
    EXPECT_NE(program.err().find("[ABORTED]"), std::string::npos) << program.err();
  }
}

TEST(Run, EndsAtASignalWhileAServerIsSilent) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listener, 4), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const timeval patience{60, 0};  // a program that never connects must not block the other tests
  setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  const std::string url =
      "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/model.gguf";
  Program program({url, "-p", "Once"});
  const int connection = accept(listener, nullptr, nullptr);
  program.kill(SIGINT);
  EXPECT_EQ(program.wait(), 130);
  EXPECT_NE(program.err().find("[ABORTED]"), std::string::npos) << program.err();
  close(connection);
  close(listener);
}

// Scalar kernels are slow enough that the signal arrives in mid-generation.
std::vector<std::string> slow_run() {
  return {kModel,   "--raw",        "-p",        "Once upon a time", "-n",
          "100000", "--ignore-eos", "--kernels", "scalar",           "--threads",
          "1",      "--temp",       "0"};
}

TEST(Run, EndsAtASignalDuringGeneration) {
  Program program(slow_run());
  program.await_output();
  program.kill(SIGTERM);
  EXPECT_EQ(program.wait(), 130);
  EXPECT_EQ(program.out().substr(0, 16), "Once upon a time");
  EXPECT_EQ(program.out().back(), '\n');
}

TEST(Run, AnAbortedGenerationIsCompleteJson) {
  std::vector<std::string> args = slow_run();
  args.insert(args.end(), {"--json", "--ctx", "8192"});  // seconds of work
  Program program(args);
  program.await_work(50);  // half a second: loading takes a tenth of that
  program.kill(SIGINT);
  EXPECT_EQ(program.wait(), 130) << program.err();
  const nlohmann::json out = nlohmann::json::parse(program.out(), nullptr, false);
  ASSERT_TRUE(out.is_object()) << program.out();
  EXPECT_EQ(out["finishReason"], "aborted");
  EXPECT_GT(out["generatedTokens"].get<int>(), 0);
  EXPECT_FALSE(out["text"].get<std::string>().empty());
  EXPECT_GT(out["tokensPerSecond"].get<double>(), 0);
}

TEST(Run, NoTokensMeansNoRate) {
  Program program({kModel, "-p", "Once upon a time", "-n", "0", "--json"});
  EXPECT_EQ(program.wait(), 0);
  const nlohmann::json out = nlohmann::json::parse(program.out(), nullptr, false);
  ASSERT_TRUE(out.is_object()) << program.out();
  EXPECT_EQ(out["generatedTokens"], 0);
  EXPECT_EQ(out["tokensPerSecond"], 0);
  EXPECT_EQ(out["generateMs"], 0);
  EXPECT_GT(out["promptTokensPerSecond"].get<double>(), 0);
}

// A model that answers with a script, in a file of its own.
std::string scripted(const char* name, const test::ScriptedModel& model) {
  const std::string path = testing::TempDir() + "sluice-run-" + name + ".gguf";
  model.write(path);
  return path;
}

TEST(Run, AModelCannotControlTheTerminal) {
  const std::string model =
      scripted("evil", {.chat_template = {},
                        .tool_template = {},
                        .scripts = {{"<|go|>", {"a\033[2J", "\u009b1m\x7f", "b\r\n\tc"}}},
                        .controls = {}});
  const std::string text =
      "a\033[2J\u009b1m\x7f"
      "b\r\n\tc";
  Program pipe({model, "-p", "\033[1m<|go|>"});
  EXPECT_EQ(pipe.wait(), 0) << pipe.err();
  EXPECT_EQ(pipe.out(), "\033[1m<|go|>" + text + "\n");  // bytes stay as they are
  Program json({model, "-p", "<|go|>", "--json"});
  EXPECT_EQ(json.wait(), 0) << json.err();
  EXPECT_EQ(json.out().find_first_of("\033\x7f"), std::string::npos) << json.out();
  EXPECT_EQ(json.out().find("\u009b"), std::string::npos) << json.out();
  EXPECT_EQ(nlohmann::json::parse(json.out(), nullptr, false)["text"], text);
  Terminal terminal({test::program_path("sluice"), "run", model, "-p", "\033[1m<|go|>"});
  EXPECT_EQ(terminal.wait(), 0) << terminal.screen();
  EXPECT_NE(terminal.screen().find("?[1m<|go|>a?[2J??1m?b?\r\n\tc\r\n"), std::string::npos)
      << terminal.screen();
  std::filesystem::remove(model);
}

TEST(Run, PutsThePromptIntoAGivenChatTemplate) {
  const std::string model =
      scripted("template", {.chat_template = "{{ messages }}",
                            .tool_template = {},
                            .scripts = {{"<|go|>", {"[THINK]", "Hmm", "[/THINK]", "Yes", "."}}},
                            .controls = {"[THINK]", "[/THINK]"}});
  const std::string text =
      "{{ messages[0].content }}{% if false %}[THINK][/THINK]{% endif %}<|go|>";
  Program plain({model, "-p", "<|go|>", "--chat-template", text});
  EXPECT_EQ(plain.wait(), 0) << plain.err();
  EXPECT_EQ(plain.out(), "Yes.\n");
  Program json({model, "-p", "Hello", "--chat-template", text, "--json"});
  EXPECT_EQ(json.wait(), 0) << json.err();
  const nlohmann::json out = nlohmann::json::parse(json.out(), nullptr, false);
  EXPECT_EQ(out["text"], "Yes.");
  EXPECT_EQ(out["reasoning"], "Hmm");
  Terminal terminal(
      {test::program_path("sluice"), "run", model, "-p", "Hello", "--chat-template", text});
  EXPECT_EQ(terminal.wait(), 0) << terminal.screen();
  EXPECT_NE(terminal.screen().find("\033[2mHmm\033[0m\r\n\r\nYes.\r\n"), std::string::npos)
      << terminal.screen();
  // A schema holds for the content, and the reasoning comes before it.
  const std::string schema = testing::TempDir() + "sluice-run-schema.json";
  std::ofstream(schema) << R"({"enum": ["No."]})";
  Program bound({model, "-p", "Hello", "--chat-template", text, "--json-schema", schema, "--json",
                 "--temp", "0"});
  EXPECT_EQ(bound.wait(), 0) << bound.err();
  const nlohmann::json constrained = nlohmann::json::parse(bound.out(), nullptr, false);
  EXPECT_EQ(constrained["reasoning"], "Hmm") << bound.out();
  EXPECT_EQ(constrained["text"], "\"No.\"");
  Program wrong({"/nowhere.gguf", "-p", "Hello", "--chat-template", "{% if %}"});
  EXPECT_EQ(wrong.wait(), 1);
  EXPECT_NE(wrong.err().find("[CHAT_TEMPLATE]"), std::string::npos) << wrong.err();
  std::filesystem::remove(schema);
  std::filesystem::remove(model);
}

// A model whose template asks for "<|go|>"; without the template it continues other text.
std::string with_template(const char* name) {
  return scripted(name, {.chat_template = "{{ messages[-1].content }}<|go|>",
                         .tool_template = {},
                         .scripts = {{"<|go|>", {"Yes", "."}}, {"<|no|>", {"No", "!"}}},
                         .controls = {}});
}

TEST(Run, UsesTheModelsChatTemplateUnlessRaw) {
  const std::string model = with_template("chat");
  const auto out = [](const std::vector<std::string>& args) {
    Program program(args);
    EXPECT_EQ(program.wait(), 0) << program.err();
    return program.out();
  };
  EXPECT_EQ(out({model, "Hello"}), "Yes.\n");
  EXPECT_EQ(out({"Hello", "-m", model}), "Yes.\n");
  EXPECT_EQ(out({model, "-p", "Hello"}), "Yes.\n");
  EXPECT_EQ(out({model, "--system", "Be kind.", "Hello"}), "Yes.\n");
  EXPECT_EQ(out({model, "--raw", "Hello<|no|>"}), "Hello<|no|>No!\n");
  EXPECT_EQ(out({model, "--raw", "<|no|>", "--no-display-prompt"}), "No!\n");
  EXPECT_EQ(out({model, "-no-cnv", "-p", "<|no|>"}), "<|no|>No!\n");
  // What a user writes is no control token.
  EXPECT_EQ(out({model, "<|no|>"}), "Yes.\n");
  std::filesystem::remove(model);
}

TEST(Run, WithoutAPromptHoldsAConversation) {
  const std::string model = with_template("talk");
  Program program({model});
  program.write_input("Hello\n/clear\nAgain\n/bye\nnever read\n");
  EXPECT_EQ(program.wait(), 0) << program.err();
  EXPECT_EQ(program.out(), "Yes.\nYes.\n");
  Terminal terminal({test::program_path("sluice"), "run", model});
  ASSERT_TRUE(terminal.await("/? lists the commands.")) << terminal.screen();
  std::filesystem::remove(model);
}

TEST(Run, PrintsTheRatesOfPromptAndGenerationUnlessQuiet) {
  const std::string model = with_template("rates");
  Program program({model, "Hello"});
  EXPECT_EQ(program.wait(), 0);
  EXPECT_NE(program.err().find("prompt 6 tokens, "), std::string::npos) << program.err();
  EXPECT_NE(program.err().find(" tok/s | generated 2 tokens, "), std::string::npos)
      << program.err();
  Program short_run({model, "Hello", "-n", "1"});
  EXPECT_EQ(short_run.wait(), 0);
  EXPECT_NE(short_run.err().find("stopped by --n-predict"), std::string::npos) << short_run.err();
  for (const char* silent : {"--quiet", "--json"}) {
    Program quiet({model, "Hello", silent});
    EXPECT_EQ(quiet.wait(), 0);
    EXPECT_EQ(quiet.err(), "") << silent;
  }
  std::filesystem::remove(model);
}

TEST(Run, TakesConstraintsInlineAndFromFiles) {
  const std::string file = testing::TempDir() + "sluice-run-inline";
  const std::string schema = R"({"enum": ["No."]})", grammar = R"(root ::= "No" "."+)";
  const auto text = [](const std::string& option, const std::string& value) {
    Program program({kModel, "Hello", option, value, "--quiet", "-n", "4"});
    EXPECT_EQ(program.wait(), 0) << program.err();
    return program.out();
  };
  for (const char* option : {"--json-schema", "-j"}) {
    EXPECT_EQ(text(option, schema), "\"No.\"\n") << option;
  }
  std::ofstream(file) << schema;
  for (const char* option : {"--json-schema", "-jf", "--json-schema-file"}) {
    EXPECT_EQ(text(option, file), "\"No.\"\n") << option;
  }
  EXPECT_EQ(text("--grammar", grammar).substr(0, 3), "No.");
  std::ofstream(file) << grammar;
  for (const char* option : {"--grammar", "--grammar-file"}) {
    EXPECT_EQ(text(option, file).substr(0, 3), "No.") << option;
  }
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace sluice::tools

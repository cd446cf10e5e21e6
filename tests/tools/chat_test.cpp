// `sluice chat` as scripts use it, through pipes, and as people do, in a terminal: commands,
// follow-ups that compute only new tokens, and Ctrl-C during a response and at the prompt.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "../paths.h"
#include "../sanitized.h"
#include "../scripted_model.h"
#include "terminal.h"

namespace sluice::tools {
namespace {

const std::string kModel = sluice::test::source_dir() + "/examples/models/sluice-tales-Q8_0.gguf";

struct Ran {
  int status = -1;
  std::string out, err;
};

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::filesystem::path folder() {
  static int n = 0;
  const auto path = std::filesystem::temp_directory_path() /
                    ("sluice-chat-" + std::to_string(getpid()) + "-" + std::to_string(n++));
  std::filesystem::create_directories(path);
  return path;
}

std::vector<std::string> arguments(const std::vector<std::string>& more,
                                   const std::string& model = kModel) {
  std::vector<std::string> all = {
      sluice::test::program_path("sluice"), "chat", model, "--temp", "0", "--threads", "1"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// Runs it over lines of input, with files as its standard streams.
Ran talk(const std::string& input, const std::vector<std::string>& more = {},
         const std::string& model = kModel) {
  const auto at = folder();
  std::ofstream(at / "in") << input;
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(open((at / "in").c_str(), O_RDONLY), 0);
    dup2(open((at / "out").c_str(), O_CREAT | O_WRONLY, 0600), 1);
    dup2(open((at / "err").c_str(), O_CREAT | O_WRONLY, 0600), 2);
    execute(arguments(more, model));
  }
  Ran ran;
  int status = 0;
  waitpid(pid, &status, 0);
  ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  ran.out = read(at / "out");
  ran.err = read(at / "err");
  std::filesystem::remove_all(at);
  return ran;
}

// The numbers in the last line of /stats about prompt tokens and kept tokens.
std::pair<int, int> prompt_and_kept(const std::string& out) {
  const std::regex line("prompt (\\d+) tokens, (\\d+) of them cached");
  std::pair<int, int> found{-1, -1};
  for (std::sregex_iterator at(out.begin(), out.end(), line), end; at != end; ++at) {
    found = {std::stoi((*at)[1]), std::stoi((*at)[2])};
  }
  return found;
}

TEST(Chat, AnswersLinesOfAPipeAndReusesItsKvCache) {
  const Ran ran = talk("Tell me a tale.\n/stats\nAnd then?\n/stats\n/quit\nnever read\n",
                       {"-n", "12", "--system", "Be kind."});
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.out.find("3 messages"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("5 messages"), std::string::npos) << ran.out;
  const auto [prompt, kept] = prompt_and_kept(ran.out);
  EXPECT_GT(kept, 20) << ran.out;
  EXPECT_LT(kept, prompt);
  EXPECT_EQ(ran.out.find('\033'), std::string::npos);  // no terminal, no styles
  EXPECT_EQ(ran.out.find("[12 tokens"), std::string::npos);
  EXPECT_EQ(ran.out.find("chat template"), std::string::npos);
}

TEST(Chat, SavesConversationsAndContinuesThem) {
  const auto at = folder();
  const std::string file = (at / "kept.json").string();
  const Ran first = talk("Once upon a time\n/save " + file + "\nAnd then?\n", {"-n", "12"});
  EXPECT_EQ(first.status, 0) << first.err;
  const nlohmann::json kept = nlohmann::json::parse(read(file), nullptr, false);
  ASSERT_TRUE(kept.is_object());
  ASSERT_EQ(kept["messages"].size(), 2u);
  EXPECT_EQ(kept["messages"][0]["content"], "Once upon a time");
  EXPECT_EQ(kept["messages"][1]["role"], "assistant");
  const Ran again = talk("/load " + file + "\nAnd then?\n", {"-n", "12"});
  EXPECT_EQ(again.status, 0) << again.err;
  const std::string last = "2 messages\n";
  ASSERT_EQ(again.out.substr(0, last.size()), last);
  EXPECT_TRUE(first.out.ends_with(again.out.substr(last.size()))) << first.out << again.out;
  std::ofstream(at / "bad.json") << R"({"messages":[{"role":"user"}]})";
  const Ran bad = talk("/load " + (at / "bad.json").string() + "\n/load " + (at / "no").string() +
                       "\n/load " + at.string() + "\n/load\n/what\n/save " + kModel + "\n");
  EXPECT_EQ(bad.status, 1);
  for (const char* why : {"no \"role\" or no \"content\"", "cannot read the file",
                          "needs a file name", "unknown command /what", "is a file of the model"}) {
    EXPECT_NE(bad.err.find(why), std::string::npos) << why << ": " << bad.err;
  }
  std::filesystem::remove_all(at);
}

TEST(Chat, ReportsAFullContextAndContinuesAfterAReset) {
  std::string long_message;
  for (int i = 0; i < 200; ++i) long_message += "again and ";
  const Ran ran =
      talk(long_message + "\nHello\n" + "\\\n/reset\nHello\n/stats\n", {"-n", "8", "--ctx", "64"});
  EXPECT_EQ(ran.status, 1);
  EXPECT_NE(ran.err.find("the conversation fills the context of 64 tokens: use /clear"),
            std::string::npos)
      << ran.err;
  EXPECT_NE(ran.out.find("generated 8 tokens"), std::string::npos) << ran.out;
  EXPECT_EQ(talk("", {"--json"}).status, 1);
}

TEST(Chat, CtrlCStopsAResponseAndTwiceAtThePromptTheProgram) {
  if (test::kSanitized) GTEST_SKIP() << "the program is ten times slower than the typing";
  Terminal terminal(arguments({"--ignore-eos", "--kernels", "scalar"}));  // slow and endless
  ASSERT_TRUE(terminal.prompt()) << terminal.screen();
  terminal.type("/system be kind\n");
  ASSERT_TRUE(terminal.prompt()) << terminal.screen();
  terminal.type("Tell me é tale\n");
  // Terminal and editor may both show the line; the response continues without end.
  ASSERT_TRUE(terminal.await_more(200)) << terminal.screen();
  terminal.type("\x03");
  ASSERT_TRUE(terminal.prompt()) << terminal.screen();
  terminal.type("/stats\n");
  ASSERT_TRUE(terminal.await("3 messages")) << terminal.screen();
  EXPECT_EQ(terminal.screen().find("fills the context"), std::string::npos) << terminal.screen();
  ASSERT_TRUE(terminal.prompt()) << terminal.screen();
  terminal.type("half a line\x03");
  ASSERT_TRUE(terminal.await("again to quit")) << terminal.screen();
  ASSERT_TRUE(terminal.prompt()) << terminal.screen();
  terminal.type("/system\n");
  ASSERT_TRUE(terminal.await("be kind")) << terminal.screen();
  ASSERT_TRUE(terminal.prompt()) << terminal.screen();
  terminal.type("\x03");
  ASSERT_TRUE(terminal.prompt()) << terminal.screen();
  terminal.type("\x03");
  EXPECT_EQ(terminal.wait(), 130) << terminal.screen();
}

TEST(Chat, EditsLinesKeepsAHistoryAndEndsAtCtrlD) {
  if (test::kSanitized) GTEST_SKIP() << "the program is ten times slower than the typing";
  Terminal terminal(arguments({"-n", "2"}));
  ASSERT_TRUE(terminal.prompt()) << terminal.screen();
  terminal.type(
      "/system abd\x7f"
      "c\n");  // a typo, corrected
  ASSERT_TRUE(terminal.prompt()) << terminal.screen();
  terminal.type("/system\n");
  ASSERT_TRUE(terminal.await("\033[?2004labc")) << terminal.screen();
  ASSERT_TRUE(terminal.prompt()) << terminal.screen();
  terminal.type(
      "\x10\x10"
      "d\n");  // two lines up
  ASSERT_TRUE(terminal.prompt()) << terminal.screen();
  terminal.type("/system\n");
  ASSERT_TRUE(terminal.await("\033[?2004labcd")) << terminal.screen();
  ASSERT_TRUE(terminal.prompt()) << terminal.screen();
  terminal.type("\x04");
  EXPECT_EQ(terminal.wait(), 0) << terminal.screen();
}

// A model that answers with a script, in a file of its own.
class Scripted {
 public:
  explicit Scripted(const test::ScriptedModel& model) : at_(folder()) { model.write(path()); }
  ~Scripted() { std::filesystem::remove_all(at_); }
  Scripted(const Scripted&) = delete;
  Scripted& operator=(const Scripted&) = delete;
  [[nodiscard]] std::string path() const { return (at_ / "script.gguf").string(); }

 private:
  std::filesystem::path at_;
};

std::string teaching(const std::string& format) {
  return "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{% if false %}" + format +
         "{% endif %}<|go|>";
}

TEST(Chat, APasteIsOneMessage) {
  if (test::kSanitized) GTEST_SKIP() << "the program is ten times slower than the typing";
  const auto at = folder();
  const std::string file = (at / "kept.json").string();
  Terminal terminal(arguments({"-n", "2"}));
  ASSERT_TRUE(terminal.prompt()) << terminal.screen();
  EXPECT_TRUE(terminal.marks_pastes()) << terminal.screen();
  // Terminals send a carriage return for a line end, or the text as it is.
  terminal.type("So: \033[200~one é\r\rtwo /bye\r\n/bye\n\tthree \033[1m\033[201~ end\n");
  ASSERT_TRUE(terminal.await("tok/s]")) << terminal.screen();
  ASSERT_TRUE(terminal.prompt()) << terminal.screen();
  terminal.type("/save " + file + "\n");
  ASSERT_TRUE(terminal.prompt()) << terminal.screen();
  const nlohmann::json kept = nlohmann::json::parse(read(file), nullptr, false);
  ASSERT_TRUE(kept.is_object()) << terminal.screen();
  ASSERT_EQ(kept["messages"].size(), 2u);
  EXPECT_EQ(kept["messages"][0]["content"], "So: one é\n\ntwo /bye\n/bye\n\tthree \033[1m end");
  terminal.type("\033[200~/bye\rtwo lines\033[201~\n");
  ASSERT_TRUE(terminal.await("tok/s]")) << terminal.screen();
  ASSERT_TRUE(terminal.prompt()) << terminal.screen();
  terminal.type("\033[200~/system be\r  kind\033[201~\n");
  ASSERT_TRUE(terminal.await("\033[?2004l")) << terminal.screen();
  ASSERT_TRUE(terminal.prompt()) << terminal.screen();
  terminal.type("/save " + file + "\n");
  ASSERT_TRUE(terminal.prompt()) << terminal.screen();
  const nlohmann::json more = nlohmann::json::parse(read(file), nullptr, false);
  ASSERT_EQ(more["messages"].size(), 5u) << terminal.screen();
  EXPECT_EQ(more["messages"][0]["content"], "be\n  kind");
  EXPECT_EQ(more["messages"][3]["content"], "/bye\ntwo lines");
  terminal.type("\033[200~" + std::string((1 << 20) + 10, 'x') + "\033[201~\n");
  ASSERT_TRUE(terminal.await("at most 1048576 bytes")) << "a long paste";
  ASSERT_TRUE(terminal.prompt());
  terminal.type("\x04");
  EXPECT_EQ(terminal.wait(), 0);
  EXPECT_FALSE(terminal.marks_pastes());
  std::filesystem::remove_all(at);
}

TEST(Chat, TheTerminalGetsItsModesBackHoweverThePromptEnds) {
  if (test::kSanitized) GTEST_SKIP() << "the program is ten times slower than the typing";
  for (const int signal : {SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGABRT}) {
    Terminal terminal(arguments({}));
    ASSERT_TRUE(terminal.prompt()) << terminal.screen();
    ASSERT_TRUE(terminal.marks_pastes());
    ASSERT_FALSE(terminal.canonical());
    terminal.kill(signal);
    if (signal == SIGINT) {
      ASSERT_TRUE(terminal.prompt()) << terminal.screen();
      terminal.kill(signal);
    }
    EXPECT_EQ(terminal.wait(), signal == SIGINT || signal == SIGTERM ? 130 : -1);
    EXPECT_FALSE(terminal.marks_pastes()) << signal;
    EXPECT_TRUE(terminal.canonical()) << signal;
  }
  Terminal terminal(arguments({}));
  ASSERT_TRUE(terminal.prompt()) << terminal.screen();
  terminal.kill(SIGTSTP);
  ASSERT_TRUE(terminal.stopped());
  EXPECT_FALSE(terminal.marks_pastes());
  EXPECT_TRUE(terminal.canonical());
  terminal.kill(SIGCONT);
  ASSERT_TRUE(terminal.await("\033[?2004h"));
  EXPECT_FALSE(terminal.canonical());
  terminal.type("/system\n");
  ASSERT_TRUE(terminal.await("(none)")) << terminal.screen();
}

TEST(Chat, ATerminalShowsTheModelAndEachRate) {
  if (test::kSanitized) GTEST_SKIP() << "the program is ten times slower than the typing";
  Terminal terminal(arguments({"-n", "3", "--memory-budget", "8M", "-c", "256"}));
  ASSERT_TRUE(terminal.prompt()) << terminal.screen();
  const std::regex header(
      "^[^\n]+ \\(llama\\), context 256 tokens, memory [0-9.]+ [kM]B of a "
      "budget of 8M\r\nchat template: the model's\r\n/\\? lists the commands");
  EXPECT_TRUE(std::regex_search(terminal.screen(), header)) << terminal.screen();
  terminal.type("Hello\n");
  ASSERT_TRUE(terminal.prompt()) << terminal.screen();
  EXPECT_TRUE(std::regex_search(terminal.screen(),
                                std::regex("\033\\[2m\\[3 tokens, [0-9.]+ tok/s\\]\033\\[0m")))
      << terminal.screen();

  Terminal quiet(arguments({"-n", "3", "--quiet"}));
  ASSERT_TRUE(quiet.prompt()) << quiet.screen();
  quiet.type("Hello\n");
  ASSERT_TRUE(quiet.prompt()) << quiet.screen();
  for (const char* words : {"context", "lists the commands", "tok/s"}) {
    EXPECT_EQ(quiet.screen().find(words), std::string::npos) << quiet.screen();
  }
}

TEST(Chat, CommandsHaveTheNamesOfOllamaToo) {
  const Ran ran = talk("Hello\n/clear\n/stats\nHello\n/reset\n/stats\n/?\n/bye\nnever read\n",
                       {"-n", "2", "--system", "Be kind."});
  EXPECT_EQ(ran.status, 0) << ran.err;
  const size_t first = ran.out.find("1 messages"), second = ran.out.find("1 messages", first + 1);
  EXPECT_NE(second, std::string::npos) << ran.out;
  for (const char* name : {"/system", "/save", "/load", "/clear, /reset", "/stats",
                           "/bye, /quit, /exit", "/help, /?"}) {
    EXPECT_NE(ran.out.find(std::string("\n") + name), std::string::npos) << name << ran.out;
  }
  EXPECT_EQ(talk("/exit\n/what\n").status, 0);
  const Ran wrong = talk("/sav x\n/claer\n/byee\n/qu\n/\n/usr/bin is full\n/z\n");
  EXPECT_EQ(wrong.status, 1);
  EXPECT_EQ(wrong.err,
            "sluice: unknown command /sav: did you mean /save; /help lists the commands "
            "[INVALID_ARGUMENT]\n"
            "sluice: unknown command /claer: did you mean /clear; /help lists the commands "
            "[INVALID_ARGUMENT]\n"
            "sluice: unknown command /byee: did you mean /bye; /help lists the commands "
            "[INVALID_ARGUMENT]\n"
            "sluice: unknown command /qu: did you mean /quit; /help lists the commands "
            "[INVALID_ARGUMENT]\n"
            "sluice: unknown command /; /help lists the commands [INVALID_ARGUMENT]\n"
            "sluice: unknown command /usr/bin; /help lists the commands [INVALID_ARGUMENT]\n"
            "sluice: unknown command /z; /help lists the commands [INVALID_ARGUMENT]\n");
}

TEST(Chat, DimsTheReasoningOfEveryFormat) {
  if (test::kSanitized) GTEST_SKIP() << "the program is ten times slower than the typing";
  struct Format {
    const char* taught;
    std::vector<std::string> controls, pieces;
  };
  const Format formats[] = {
      {"<think></think>", {}, {"<think>Hmm</think>", "\n\nYes."}},
      {"[THINK][/THINK]", {"[THINK]", "[/THINK]"}, {"[THINK]", "Hmm", "[/THINK]", "Yes."}},
      {"<seed:think></seed:think>",
       {"<seed:think>", "</seed:think>"},
       {"<seed:think>", "Hmm", "</seed:think>", "Yes."}},
      {"<|START_THINKING|><|END_THINKING|><|START_RESPONSE|><|END_RESPONSE|>",
       {"<|START_THINKING|>", "<|END_THINKING|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>"},
       {"<|START_THINKING|>", "Hmm", "<|END_THINKING|>", "<|START_RESPONSE|>", "Yes.",
        "<|END_RESPONSE|>"}},
      {"<|channel>thought\n<channel|>",
       {"<|channel>", "<channel|>"},
       {"<|channel>", "thought\n", "Hmm", "<channel|>", "Yes."}},
      {"<|channel|>analysis<|message|><|start|>assistant<|end|>",
       {"<|channel|>", "<|message|>", "<|start|>"},
       {"<|channel|>", "analysis", "<|message|>", "Hmm", "<|start|>", "assistant"}}};
  for (const Format& format : formats) {
    const Scripted model({.chat_template = teaching(format.taught),
                          .tool_template = {},
                          .scripts = {{"<|go|>", format.pieces}},
                          .controls = format.controls});
    const bool answers = format.pieces.back() != "assistant";
    Terminal terminal(arguments({"--quiet"}, model.path()));
    ASSERT_TRUE(terminal.prompt()) << terminal.screen();
    terminal.type("Hello\n");
    ASSERT_TRUE(terminal.prompt()) << terminal.screen();
    const std::string expected =
        answers ? "\033[2mHmm\033[0m\r\n\r\nYes.\r\n" : "\033[2mHmm\033[0m\r\n";
    EXPECT_NE(terminal.screen().find(expected), std::string::npos)
        << format.taught << terminal.screen();
    // A pipe has the response alone.
    EXPECT_EQ(talk("Hello\n", {}, model.path()).out, answers ? "Yes.\n" : "\n") << format.taught;
  }
}

TEST(Chat, AModelCannotControlTheTerminal) {
  if (test::kSanitized) GTEST_SKIP() << "the program is ten times slower than the typing";
  const Scripted model(
      {.chat_template = teaching("<think></think>"),
       .tool_template = {},
       .scripts = {{"<|go|>", {"<think>\033[2J</think>", "\033]0;x\x07", "\u009b1m"}}},
       .controls = {}});
  Terminal terminal(arguments({"--quiet"}, model.path()));
  ASSERT_TRUE(terminal.prompt()) << terminal.screen();
  terminal.type("Hello\n");
  ASSERT_TRUE(terminal.prompt()) << terminal.screen();
  EXPECT_NE(terminal.screen().find("\033[2m?[2J\033[0m\r\n\r\n?]0;x???1m\r\n"), std::string::npos)
      << terminal.screen();
  EXPECT_EQ(talk("Hello\n", {}, model.path()).out, "\033]0;x\x07\u009b1m\n");
}

TEST(Chat, TakesItsTemplateFromTheModelOrTheCommandLine) {
  const test::ScriptedModel script{.chat_template = {},
                                   .tool_template = teaching(""),
                                   .scripts = {{"<|go|>", {"Yes", "."}}, {"<|no|>", {"No", "!"}}},
                                   .controls = {}};
  const Scripted tools_only(script);
  const Ran own = talk("Hello\n", {}, tools_only.path());
  EXPECT_EQ(own.out, "Yes.\n") << own.err;
  EXPECT_EQ(own.err, "");
  const std::string other = "{{ messages[0].content }}<|no|>";
  EXPECT_EQ(talk("Hello\n", {"--chat-template", other}, tools_only.path()).out, "No!\n");
  const auto at = folder();
  const std::string file = (at / "own.jinja").string();
  std::ofstream(file) << other;
  EXPECT_EQ(talk("Hello\n", {"--chat-template-file", file}, tools_only.path()).out, "No!\n");

  // Checked before a model is opened.
  std::ofstream(at / "bad.jinja") << "{% for %}";
  std::ofstream(at / "empty.jinja") << "";
  const auto refused = [&](const std::vector<std::string>& more, const char* code) {
    const Ran ran = talk("Hello\n", more, "/nowhere.gguf");
    EXPECT_GT(ran.status, 0);
    EXPECT_NE(ran.err.find(std::string("[") + code + "]"), std::string::npos) << ran.err;
  };
  refused({"--chat-template", "chatml"}, "INVALID_ARGUMENT");
  refused({"--chat-template", "{% if %}"}, "CHAT_TEMPLATE");
  refused({"--chat-template-file", (at / "bad.jinja").string()}, "CHAT_TEMPLATE");
  refused({"--chat-template-file", (at / "empty.jinja").string()}, "INVALID_ARGUMENT");
  refused({"--chat-template-file", (at / "none.jinja").string()}, "NOT_FOUND");
  refused({"--chat-template", other, "--chat-template-file", file}, "INVALID_ARGUMENT");
  std::filesystem::remove_all(at);
}

}  // namespace
}  // namespace sluice::tools

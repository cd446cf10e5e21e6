// `sluice chat` as scripts use it, through pipes, and as people do, in a terminal: commands,
// follow-ups that compute only new tokens, and Ctrl-C during a response and at the prompt.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <thread>

#include "../paths.h"
#include "../sanitized.h"

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

std::vector<std::string> arguments(const std::vector<std::string>& more) {
  std::vector<std::string> all = {
      sluice::test::program_path("sluice"), "chat", kModel, "--temp", "0", "--threads", "1"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

[[noreturn]] void execute(std::vector<std::string> args) {
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(127);
}

// Runs it over lines of input, with files as its standard streams.
Ran talk(const std::string& input, const std::vector<std::string>& more = {}) {
  const auto at = folder();
  std::ofstream(at / "in") << input;
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(open((at / "in").c_str(), O_RDONLY), 0);
    dup2(open((at / "out").c_str(), O_CREAT | O_WRONLY, 0600), 1);
    dup2(open((at / "err").c_str(), O_CREAT | O_WRONLY, 0600), 2);
    execute(arguments(more));
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
  EXPECT_NE(ran.err.find("the conversation fills the context of 64 tokens: use /reset"),
            std::string::npos)
      << ran.err;
  EXPECT_NE(ran.out.find("generated 8 tokens"), std::string::npos) << ran.out;
  EXPECT_EQ(talk("", {"--json"}).status, 1);
}

// `sluice chat` in a pseudo-terminal.
class Terminal {
 public:
  explicit Terminal(const std::vector<std::string>& more) {
    pid_ = forkpty(&fd_, nullptr, nullptr, nullptr);
    if (pid_ == 0) {
      setenv("TERM", "xterm", 1);
      execute(arguments(more));
    }
  }
  ~Terminal() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(fd_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void type(const std::string& text) {
    EXPECT_EQ(write(fd_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  // Waits until the screen shows `text`, after the text awaited before.
  bool await(const std::string& text) {
    for (int i = 0; i < 600; ++i) {
      const size_t at = screen_.find(text, seen_);
      if (at != std::string::npos) {
        seen_ = at + text.size();
        return true;
      }
      pollfd one{fd_, POLLIN, 0};
      char part[4096];
      if (poll(&one, 1, 100) <= 0) continue;
      const ssize_t n = ::read(fd_, part, sizeof part);
      if (n <= 0) return false;
      screen_.append(part, static_cast<size_t>(n));
    }
    return false;
  }
  // Waits for a prompt whose line is being edited; before that the terminal handles input itself.
  bool prompt() {
    if (!await("> ")) return false;
    termios modes{};
    for (int i = 0; i < 6000; ++i) {
      if (tcgetattr(fd_, &modes) == 0 && (modes.c_lflag & ICANON) == 0) return true;
      (void)await_any();
    }
    return false;
  }
  // Waits until the screen shows that many more bytes.
  bool await_more(size_t bytes) {
    const size_t enough = screen_.size() + bytes;
    for (int i = 0; i < 6000 && screen_.size() < enough; ++i) (void)await_any();
    seen_ = screen_.size();
    return screen_.size() >= enough;
  }
  int wait() {
    int status = 0;
    for (int i = 0; i < 6000; ++i) {
      (void)await_any();
      if (waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
      }
    }
    return -2;
  }
  [[nodiscard]] const std::string& screen() const { return screen_; }

 private:
  bool await_any() {
    pollfd one{fd_, POLLIN, 0};
    char part[4096];
    if (poll(&one, 1, 10) <= 0) return false;
    const ssize_t n = ::read(fd_, part, sizeof part);
    if (n > 0) screen_.append(part, static_cast<size_t>(n));
    if (n <= 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return n > 0;
  }
  pid_t pid_ = -1;
  int fd_ = -1;
  std::string screen_;
  size_t seen_ = 0;
};

TEST(Chat, CtrlCStopsAResponseAndTwiceAtThePromptTheProgram) {
  if (test::kSanitized) GTEST_SKIP() << "the program is ten times slower than the typing";
  Terminal terminal({"--ignore-eos", "--kernels", "scalar"});  // slow and endless
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
  Terminal terminal({"-n", "2"});
  ASSERT_TRUE(terminal.prompt()) << terminal.screen();
  terminal.type(
      "/system abd\x7f"
      "c\n");  // a typo, corrected
  ASSERT_TRUE(terminal.prompt()) << terminal.screen();
  terminal.type("/system\n");
  ASSERT_TRUE(terminal.await("\nabc")) << terminal.screen();
  ASSERT_TRUE(terminal.prompt()) << terminal.screen();
  terminal.type(
      "\x10\x10"
      "d\n");  // two lines up
  ASSERT_TRUE(terminal.prompt()) << terminal.screen();
  terminal.type("/system\n");
  ASSERT_TRUE(terminal.await("\nabcd")) << terminal.screen();
  ASSERT_TRUE(terminal.prompt()) << terminal.screen();
  terminal.type("\x04");
  EXPECT_EQ(terminal.wait(), 0) << terminal.screen();
}

}  // namespace
}  // namespace sluice::tools

// A program in a pseudo-terminal, and what it shows.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace sluice::tools {

[[noreturn]] inline void execute(std::vector<std::string> args) {
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(127);
}

// A program in a pseudo-terminal.
class Terminal {
 public:
  explicit Terminal(const std::vector<std::string>& command) {
    pid_ = forkpty(&fd_, nullptr, nullptr, nullptr);
    if (pid_ == 0) {
      setenv("TERM", "xterm", 1);
      execute(command);
    }
  }
  ~Terminal() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
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
    for (int i = 0; i < 6000; ++i) {
      if (!canonical()) return true;
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
  void kill(int signal) const { ::kill(pid_, signal); }
  // Waits until a signal has stopped the program.
  bool stopped() {
    for (int i = 0; i < 6000; ++i) {
      (void)await_any();
      int status = 0;
      if (waitpid(pid_, &status, WNOHANG | WUNTRACED) == pid_) return WIFSTOPPED(status);
    }
    return false;
  }
  // Whether pasted text is marked, by what was written so far.
  [[nodiscard]] bool marks_pastes() const {
    const size_t on = screen_.rfind("\033[?2004h"), off = screen_.rfind("\033[?2004l");
    return on != std::string::npos && (off == std::string::npos || off < on);
  }
  // Whether the terminal hands over whole lines, as programs without a line editor expect.
  [[nodiscard]] bool canonical() const {
    termios modes{};
    return tcgetattr(fd_, &modes) == 0 && (modes.c_lflag & ICANON) != 0;
  }

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

}  // namespace sluice::tools

// A running `sluice` process: its output, signals sent to it, and its exit status.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../paths.h"

namespace sluice::tools {

// The program, with pipes for its three standard streams.
class Program {
 public:
  explicit Program(std::vector<std::string> args, const char* out_path = nullptr,
                   const char* command = "run") {
    std::array<int, 2> in{}, out{}, err{};
    EXPECT_EQ(
        pipe2(in.data(), O_CLOEXEC) + pipe2(out.data(), O_CLOEXEC) + pipe2(err.data(), O_CLOEXEC),
        0);
    args.insert(args.begin(), {sluice::test::program_path("sluice"), command});
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(in[0], 0);
      dup2(out_path != nullptr ? open(out_path, O_WRONLY) : out[1], 1);
      dup2(err[1], 2);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(in[0]);
    close(out[1]);
    close(err[1]);
    in_ = in[1];
    out_ = out[0];
    err_ = err[0];
  }
  ~Program() {
    if (!ended_) {
      ::kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    for (const int fd : {in_, out_, err_}) {
      if (fd >= 0) close(fd);
    }
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void write_input(const std::string& text) {
    EXPECT_EQ(write(in_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    close(in_);
    in_ = -1;
  }
  // Waits for the first byte on standard output.
  void await_output() {
    char byte = 0;
    if (read(out_, &byte, 1) == 1) out_text_ += byte;
  }
  // Waits until the program has `n` threads (in /proc), or has computed for long enough.
  void await_threads(size_t n) {
    const std::string folder = "/proc/" + std::to_string(pid_) + "/task";
    await([&] {
      std::error_code ignored;
      const std::filesystem::directory_iterator tasks(folder, ignored), end;
      return static_cast<size_t>(std::distance(tasks, end)) >= n;
    });
  }
  void await_work(long ticks) {
    await([&] {
      std::ifstream file("/proc/" + std::to_string(pid_) + "/stat");
      std::string field;
      for (int i = 0; i < 14; ++i) file >> field;
      return file && std::stol(field) >= ticks;
    });
  }
  // Whether it is still running. Leaves the exit status for wait().
  [[nodiscard]] bool running() {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == 0;
  }
  void kill(int signal) { ::kill(pid_, signal); }
  // Exit status; -1 if a signal ended it, -2 if it did not end and was killed.
  int wait() {
    int status = 0;
    for (int i = 0; i < 6000; ++i) {
      drain();
      if (waitpid(pid_, &status, WNOHANG) == pid_) {
        ended_ = true;
        drain();
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return -2;
  }
  [[nodiscard]] const std::string& out() const { return out_text_; }
  [[nodiscard]] const std::string& err() const { return err_text_; }

 private:
  template <typename Condition>
  static void await(const Condition& condition) {
    for (int i = 0; i < 6000 && !condition(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  void drain() {
    for (auto [fd, text] : {std::pair{out_, &out_text_}, std::pair{err_, &err_text_}}) {
      fcntl(fd, F_SETFL, O_NONBLOCK);
      std::array<char, 4096> part;
      for (ssize_t n = 0; (n = read(fd, part.data(), part.size())) > 0;) {
        text->append(part.data(), static_cast<size_t>(n));
      }
    }
  }

  pid_t pid_ = -1;
  int in_ = -1, out_ = -1, err_ = -1;
  bool ended_ = false;
  std::string out_text_, err_text_;
};

}  // namespace sluice::tools

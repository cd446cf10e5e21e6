// Linux and macOS.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "platform/program.h"

extern char** environ;

namespace sluice::platform {
namespace {

bool is_program(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
         ::access(path.c_str(), X_OK) == 0;
}

struct Pipe {
  int ends[2] = {-1, -1};  // read, write

  Pipe() = default;
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  [[nodiscard]] bool open() {
    if (::pipe(ends) != 0) return false;
    for (const int end : ends) {
      if (::fcntl(end, F_SETFD, FD_CLOEXEC) != 0) return false;
    }
    return true;
  }
  void close_end(int end) {
    if (ends[end] >= 0) ::close(ends[end]);
    ends[end] = -1;
  }
};

// Reads both pipes until their ends.
void collect(Pipe* output, Pipe* errors, ProcessResult* result) {
  Pipe* pipes[] = {output, errors};
  while (output->ends[0] >= 0 || errors->ends[0] >= 0) {
    pollfd ready[] = {{output->ends[0], POLLIN, 0}, {errors->ends[0], POLLIN, 0}};
    if (::poll(ready, 2, -1) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    for (int i = 0; i < 2; ++i) {
      if (ready[i].revents == 0) continue;
      char bytes[1 << 14];
      const ssize_t got = ::read(ready[i].fd, bytes, sizeof bytes);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        pipes[i]->close_end(0);
        continue;
      }
      std::string& text = i == 0 ? result->output : result->errors;
      text.append(bytes, static_cast<size_t>(got));
      if (text.size() <= kMaxProcessOutput) continue;
      if (i == 0) {
        text.resize(kMaxProcessOutput);
      } else {
        text.erase(0, text.size() - kMaxProcessOutput);
      }
    }
  }
}

}  // namespace

std::string find_program(const std::string& name, const std::string& directory) {
  const char* path = std::getenv("PATH");
  std::string_view list = directory;
  if (list.empty() && path != nullptr) list = path;
  while (!list.empty()) {
    const size_t colon = directory.empty() ? list.find(':') : std::string_view::npos;
    const std::string found = std::string(list.substr(0, colon)) + '/' + name;
    if (is_program(found)) return found;
    if (colon == std::string_view::npos) break;
    list.remove_prefix(colon + 1);
  }
  return {};
}

bool run_program(const std::string& path, const std::vector<std::string>& arguments,
                 ProcessResult* result) {
  Pipe output, errors;
  if (!output.open() || !errors.open()) return false;
  std::vector<char*> argv{const_cast<char*>(path.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  if (::posix_spawn_file_actions_init(&actions) != 0) return false;
  posix_spawnattr_t attributes;
  if (::posix_spawnattr_init(&attributes) != 0) {
    ::posix_spawn_file_actions_destroy(&actions);
    return false;
  }
  sigset_t none;  // a SignalThread blocks signals in this process
  sigemptyset(&none);
  pid_t child = 0;
  const bool started =
      ::posix_spawnattr_setsigmask(&attributes, &none) == 0 &&
      ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK) == 0 &&
      ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0) == 0 &&
      ::posix_spawn_file_actions_adddup2(&actions, output.ends[1], STDOUT_FILENO) == 0 &&
      ::posix_spawn_file_actions_adddup2(&actions, errors.ends[1], STDERR_FILENO) == 0 &&
      ::posix_spawn(&child, path.c_str(), &actions, &attributes, argv.data(), environ) == 0;
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (!started) return false;
  output.close_end(1);
  errors.close_end(1);
  collect(&output, &errors, result);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return false;
  }
  result->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return true;
}

}  // namespace sluice::platform

// Linux and macOS.
#include <fcntl.h>
#include <langinfo.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string_view>
#include <thread>

#include "platform/console.h"

namespace sluice::platform {

std::vector<std::string> begin_console(int argc, char** argv) {
  return std::vector<std::string>(argv + std::min(argc, 1), argv + argc);
}

void use_utf8_locale() {
  std::setlocale(LC_CTYPE, "");
  if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
}

bool is_terminal(Stream stream) {
  return ::isatty(static_cast<int>(stream)) != 0;
}

bool shows_styles() {
  const char* kind = std::getenv("TERM");
  return is_terminal(Stream::kOutput) && kind != nullptr && std::strcmp(kind, "dumb") != 0;
}

long read_input(char* out, size_t n, const Wakeup& wakeup) {
  pollfd ends[] = {{STDIN_FILENO, POLLIN, 0}, {wakeup.descriptor(), POLLIN, 0}};
  ssize_t got = 0;
  do {
    got = ::poll(ends, 2, -1) < 0 ? -1 : 0;
    if (got == 0 && (ends[1].revents & POLLIN) != 0) return -1;
    if (got == 0) got = ::read(STDIN_FILENO, out, n);
  } while (got < 0 && (errno == EINTR || errno == EAGAIN));
  return got > 0 ? static_cast<long>(got) : 0;
}

namespace {

constexpr std::string_view kPasteOn = "\033[?2004h", kPasteOff = "\033[?2004l";
constexpr int kEnding[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGQUIT, SIGHUP, SIGTSTP};
termios modes_before;
struct sigaction actions_before[std::size(kEnding)];

// Async-signal-safe.
void put(std::string_view text) {
  [[maybe_unused]] const ssize_t n = ::write(STDOUT_FILENO, text.data(), text.size());
}

void on_ending_signal(int signal) {
  const int error = errno;
  termios now{};
  const bool known = ::tcgetattr(STDIN_FILENO, &now) == 0;
  if (known) ::tcsetattr(STDIN_FILENO, TCSANOW, &modes_before);
  put(kPasteOff);
  if (signal != SIGTSTP) {
    ::signal(signal, SIG_DFL);
    ::raise(signal);  // when the handler has returned
    return;
  }
  ::raise(SIGSTOP);
  if (known) ::tcsetattr(STDIN_FILENO, TCSANOW, &now);
  put(kPasteOn);
  errno = error;
}

}  // namespace

BracketedPaste::BracketedPaste() {
  if (!shows_styles() || ::tcgetattr(STDIN_FILENO, &modes_before) != 0) return;
  on_ = true;
  for (size_t i = 0; i < std::size(kEnding); ++i) {
    struct sigaction action {};
    action.sa_handler = on_ending_signal;
    ::sigaction(kEnding[i], nullptr, &actions_before[i]);
    if (actions_before[i].sa_handler != SIG_IGN) ::sigaction(kEnding[i], &action, nullptr);
  }
  put(kPasteOn);
}

BracketedPaste::~BracketedPaste() {
  if (!on_) return;
  put(kPasteOff);
  for (size_t i = 0; i < std::size(kEnding); ++i) {
    ::sigaction(kEnding[i], &actions_before[i], nullptr);
  }
}

struct SignalThread::Impl {
  std::function<void(bool)> on_signal;
  sigset_t set;
  std::thread thread;

  void loop() {
    for (;;) {
      int signal = 0;
      sigwait(&set, &signal);
      if (signal == SIGUSR1) return;
      on_signal(signal == SIGTERM);
    }
  }
};

SignalThread::SignalThread(std::function<void(bool)> on_signal) : impl_(std::make_unique<Impl>()) {
  impl_->on_signal = std::move(on_signal);
  sigemptyset(&impl_->set);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) sigaddset(&impl_->set, signal);
  pthread_sigmask(SIG_BLOCK, &impl_->set, nullptr);
  impl_->thread = std::thread([impl = impl_.get()] { impl->loop(); });
}

SignalThread::~SignalThread() {
  pthread_kill(impl_->thread.native_handle(), SIGUSR1);
  impl_->thread.join();
}

Wakeup::Wakeup() {
  usable_ = ::pipe(ends_) == 0;
  if (!usable_) ends_[0] = ends_[1] = -1;
  for (const int end : ends_) {
    if (end < 0) continue;
    ::fcntl(end, F_SETFD, FD_CLOEXEC);
    ::fcntl(end, F_SETFL, O_NONBLOCK);
  }
}

Wakeup::~Wakeup() {
  for (const int end : ends_) {
    if (end >= 0) ::close(end);
  }
}

void Wakeup::raise() {
  raised_ = true;
  [[maybe_unused]] const ssize_t n = ::write(ends_[1], "", 1);  // full: readable already
}

void Wakeup::lower() {
  char bytes[64];
  while (::read(ends_[0], bytes, sizeof bytes) == sizeof bytes) {
  }
  raised_ = false;
}

}  // namespace sluice::platform

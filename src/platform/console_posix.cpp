// Linux and macOS.
#include <fcntl.h>
#include <langinfo.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <cstdlib>
#include <cstring>
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

long process_id() {
  return ::getpid();
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

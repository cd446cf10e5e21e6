// Windows' console calls a handler in a thread that it makes itself, so none waits here. A read
// that Ctrl-C interrupts ends early; the flag then says why.
#include <fcntl.h>
#include <io.h>
#include <windows.h>

#include <mutex>

#include "platform/console.h"

namespace sluice::platform {
namespace {

HANDLE console_of(Stream stream) {
  constexpr DWORD kHandles[] = {STD_INPUT_HANDLE, STD_OUTPUT_HANDLE, STD_ERROR_HANDLE};
  return GetStdHandle(kHandles[static_cast<int>(stream)]);
}

std::mutex handler_mutex;
std::function<void(bool)>* handler = nullptr;

BOOL WINAPI on_console_event(DWORD event) {
  const std::lock_guard<std::mutex> lock(handler_mutex);
  if (handler == nullptr) return FALSE;
  (*handler)(event != CTRL_C_EVENT);
  return TRUE;
}

}  // namespace

void begin_console() {
  SetConsoleOutputCP(CP_UTF8);
  SetConsoleCP(CP_UTF8);
  for (const int fd : {0, 1, 2}) _setmode(fd, _O_BINARY);
}

void use_utf8_locale() {}

bool is_terminal(Stream stream) {
  DWORD mode = 0;
  return GetConsoleMode(console_of(stream), &mode) != 0;
}

bool shows_styles() {
  HANDLE output = console_of(Stream::kOutput);
  DWORD mode = 0;
  return GetConsoleMode(output, &mode) != 0 &&
         SetConsoleMode(output, mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING) != 0;
}

long read_input(char* out, size_t n, const Wakeup& wakeup) {
  const int got = _read(0, out, static_cast<unsigned>(n));
  if (wakeup.raised()) return -1;
  if (got > 0) return got;
  if (is_terminal(Stream::kInput)) {  // Ctrl-C ends the read before its handler has run
    for (int i = 0; i < 20 && !wakeup.raised(); ++i) Sleep(5);
  }
  return wakeup.raised() ? -1 : 0;
}

struct SignalThread::Impl {
  std::function<void(bool)> on_signal;
};

SignalThread::SignalThread(std::function<void(bool)> on_signal)
    : impl_(std::make_unique<Impl>(Impl{std::move(on_signal)})) {
  const std::lock_guard<std::mutex> lock(handler_mutex);
  handler = &impl_->on_signal;
  SetConsoleCtrlHandler(on_console_event, TRUE);
}

SignalThread::~SignalThread() {
  const std::lock_guard<std::mutex> lock(handler_mutex);
  handler = nullptr;
  SetConsoleCtrlHandler(on_console_event, FALSE);
}

long process_id() {
  return static_cast<long>(GetCurrentProcessId());
}

Wakeup::Wakeup() = default;
Wakeup::~Wakeup() = default;

void Wakeup::raise() {
  raised_ = true;
}

void Wakeup::lower() {
  raised_ = false;
}

}  // namespace sluice::platform

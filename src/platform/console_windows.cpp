// The Windows console calls its handler on a thread of its own, so no thread waits here. Ctrl-C
// ends a pending read early; the flag then says why.
#include <fcntl.h>
#include <io.h>
#include <windows.h>
// needs what windows.h declares
#include <shellapi.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "platform/console.h"
#include "platform/wide.h"

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

// File reads do not give UTF-8 from a console, so this reads UTF-16 and converts it. Ctrl-Z at the
// start of a line is the end of input.
long read_typed(char* out, size_t n) {
  constexpr wchar_t kEnd = 0x1a;
  static wchar_t kept = 0;  // a high surrogate whose low surrogate has not been read yet
  wchar_t units[1024];
  DWORD got = kept != 0 ? 1 : 0;
  units[0] = std::exchange(kept, 0);
  const DWORD room = static_cast<DWORD>(std::min(n / 3, std::size(units)));
  DWORD more = 0;
  if (room <= got) return 0;
  if (ReadConsoleW(console_of(Stream::kInput), units + got, room - got, &more, nullptr) == 0) {
    return -1;
  }
  got += more;
  if (got == 0 || units[0] == kEnd) return 0;
  if (got > 1 && IS_HIGH_SURROGATE(units[got - 1])) kept = units[--got];
  const std::string bytes = from_wide({units, got});
  return static_cast<long>(bytes.copy(out, n));
}

}  // namespace

std::vector<std::string> begin_console(int, char**) {
  static const UINT before = GetConsoleOutputCP();  // restored at exit: the window stays open
  if (before != 0) std::atexit([] { SetConsoleOutputCP(before); });
  SetConsoleOutputCP(CP_UTF8);
  for (const int fd : {0, 1, 2}) _setmode(fd, _O_BINARY);
  int n = 0;
  wchar_t** words = CommandLineToArgvW(GetCommandLineW(), &n);
  std::vector<std::string> out;
  for (int i = 1; words != nullptr && i < n; ++i) out.push_back(from_wide(words[i]));
  LocalFree(words);
  return out;
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
  const long got =
      is_terminal(Stream::kInput) ? read_typed(out, n) : _read(0, out, static_cast<unsigned>(n));
  if (wakeup.raised()) return -1;
  if (got > 0) return got;
  if (is_terminal(Stream::kInput)) {  // Ctrl-C may end the read before its handler has run
    for (int i = 0; i < 20 && !wakeup.raised(); ++i) Sleep(5);
  }
  return wakeup.raised() ? -1 : 0;
}

BracketedPaste::BracketedPaste() = default;
BracketedPaste::~BracketedPaste() = default;

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

}  // namespace sluice::platform

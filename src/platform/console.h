// The terminal: output, input and signals.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "platform/wakeup.h"

namespace sluice::platform {

// Call once, first in main(). Sets input and output to UTF-8, without newline conversion. Returns
// the arguments after the program's name, in UTF-8.
[[nodiscard]] std::vector<std::string> begin_console(int argc, char** argv);
// Sets the C locale to UTF-8, which the line editor needs.
void use_utf8_locale();

enum class Stream : int { kInput = 0, kOutput = 1, kErrors = 2 };
[[nodiscard]] bool is_terminal(Stream stream);
// Whether standard output is a terminal that supports escape sequences, including colours.
[[nodiscard]] bool shows_styles();

// Waits for bytes on standard input. Returns their number, 0 at the end of input, or -1 when
// `wakeup` was raised.
[[nodiscard]] long read_input(char* out, size_t n, const Wakeup& wakeup);

// While it lives, the terminal marks pasted text: ESC [200~ before it, ESC [201~ behind it. If a
// signal ends or stops the process meanwhile, the terminal first gets its former modes back, also
// those that a line editor has changed. Only one object may exist at a time. Does nothing where
// standard output shows no styles, and on Windows, whose console edits lines itself.
class BracketedPaste {
 public:
  BracketedPaste();
  ~BracketedPaste();
  BracketedPaste(const BracketedPaste&) = delete;
  BracketedPaste& operator=(const BracketedPaste&) = delete;

 private:
  bool on_ = false;
};

// Calls `on_signal` for Ctrl-C and for termination requests, on a thread of its own, so that it
// need not be async-signal-safe. Only one object may exist at a time. The calling thread and
// threads started later do not receive the signals.
class SignalThread {
 public:
  explicit SignalThread(std::function<void(bool terminate)> on_signal);
  ~SignalThread();
  SignalThread(const SignalThread&) = delete;
  SignalThread& operator=(const SignalThread&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::platform

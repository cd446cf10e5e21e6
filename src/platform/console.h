// The terminal around the program: what it shows, what is typed, and the signals that it sends.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "platform/wakeup.h"

namespace sluice::platform {

// Once, first in main(): text is UTF-8 in both directions, and bytes are written as they are.
// Returns what follows the program's name, in UTF-8 as well.
[[nodiscard]] std::vector<std::string> begin_console(int argc, char** argv);
// Reading a line with an editor needs the C locale to know UTF-8.
void use_utf8_locale();

enum class Stream : int { kInput = 0, kOutput = 1, kErrors = 2 };
[[nodiscard]] bool is_terminal(Stream stream);
// Whether standard output is a terminal that understands escape sequences, colours among them.
[[nodiscard]] bool shows_styles();

// Waits for bytes of standard input. Returns how many came, 0 at its end, -1 when `wakeup` was
// raised instead.
[[nodiscard]] long read_input(char* out, size_t n, const Wakeup& wakeup);

// Ctrl-C, and the request to end, as calls by a thread of their own: nothing that is called has to
// be async-signal-safe. One object at a time; signals reach neither this thread nor those that
// begin after it.
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

[[nodiscard]] long process_id();

}  // namespace sluice::platform

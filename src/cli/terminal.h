// The two ends of a conversation in a terminal: lines that a person edits, or that a pipe delivers,
// and signals, which wake whoever waits for a line.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/status.h"
#include "cli/line_editor.h"
#include "platform/console.h"

namespace sluice::cli {

class Signals {
 public:
  // Until this is called, a signal ends the process at once: a model that is being loaded may wait
  // for ever. From here on one interrupts what is under way; `wake` is called after each, by the
  // thread of signals.
  void handle(std::function<void()> wake);
  // Ctrl-C, or the end of the program, was asked for since the last clear().
  [[nodiscard]] bool interrupted() const { return interrupted_.load(); }
  [[nodiscard]] bool terminated() const { return terminated_.load(); }
  void clear();
  // Raised while interrupted().
  [[nodiscard]] const platform::Wakeup& wakeup() const { return wakeup_; }

 private:
  void take(bool terminate);
  platform::Wakeup wakeup_;
  std::mutex mutex_;
  std::function<void()> wake_;  // empty: not yet handled
  std::atomic<bool> interrupted_{false}, terminated_{false};
  platform::SignalThread thread_{[this](bool terminate) { take(terminate); }};
};

enum class Input : uint8_t { kLine, kEnd, kInterrupted, kTooLong };

inline constexpr size_t kMaxLine = 1u << 20;  // bytes

class LineReader {
 public:
  // Edits lines, with a history, where standard input and output are terminals.
  LineReader(Signals& signals, const char* prompt);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  [[nodiscard]] bool interactive() const { return editor_ != nullptr || *prompt_ != '\0'; }
  // The next line, in UTF-8 and without its end. Of one that is too long the rest is passed over.
  [[nodiscard]] Input read(std::string* line);

 private:
  // One byte of standard input, or word that there is none.
  Byte next(char* byte);
  Input read_plain(std::string* line);
  Input read_edited(std::string* line);

  Signals& signals_;
  std::unique_ptr<LineEditor> editor_;  // null: lines are read plainly
  const char* prompt_ = "";             // shown before such a line
  std::string buffer_;
  size_t at_ = 0;
};

// What a terminal may show of a text: control characters but newlines and tabs become '?'.
[[nodiscard]] std::string shown(std::string_view text);

}  // namespace sluice::cli

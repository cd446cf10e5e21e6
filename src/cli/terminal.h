// The terminal of `sluice chat` and `run`: lines from a line editor or a pipe, signals that
// interrupt waiting for a line, and generated text.
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
  // Until this is called, a signal ends the process at once, since loading a model may block
  // forever. Afterwards a signal interrupts the current work, and the signal thread calls `wake`.
  void handle(std::function<void()> wake);
  // Whether Ctrl-C or a request to terminate arrived since the last clear().
  [[nodiscard]] bool interrupted() const { return interrupted_.load(); }
  [[nodiscard]] bool terminated() const { return terminated_.load(); }
  void clear();
  // Raised while interrupted().
  [[nodiscard]] const platform::Wakeup& wakeup() const { return wakeup_; }

 private:
  void take(bool terminate);
  platform::Wakeup wakeup_;
  std::mutex mutex_;
  std::function<void()> wake_;  // empty: signals end the process
  std::atomic<bool> interrupted_{false}, terminated_{false};
  platform::SignalThread thread_{[this](bool terminate) { take(terminate); }};
};

enum class Input : uint8_t { kLine, kEnd, kInterrupted, kTooLong };

inline constexpr size_t kMaxLine = 1u << 20;  // bytes

class LineReader {
 public:
  // Uses a line editor with a history if standard input and output are terminals.
  LineReader(Signals& signals, const char* prompt);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  [[nodiscard]] bool interactive() const { return editor_ != nullptr || *prompt_ != '\0'; }
  // Reads the next line as valid UTF-8, without its line end. A line above kMaxLine is dropped.
  [[nodiscard]] Input read(std::string* line);

 private:
  // Reads one byte of standard input.
  Byte next(char* byte);
  Input read_plain(std::string* line);
  Input read_edited(std::string* line);

  Signals& signals_;
  std::unique_ptr<LineEditor> editor_;  // null: no line editor
  const char* prompt_ = "";             // printed before each line if there is no editor
  std::string buffer_;
  size_t at_ = 0;
};

// Makes text safe for a terminal: valid UTF-8, in which control characters except newlines and tabs
// become '?'.
[[nodiscard]] std::string shown(std::string_view text);

// Writes generated text to standard output. On a terminal it is made safe, since a model may write
// escape sequences; in a pipe it stays as it is.
class TextOutput {
 public:
  TextOutput();
  [[nodiscard]] bool terminal() const { return terminal_; }
  // Writes and flushes. False if standard output cannot be written; so for the others.
  bool write(std::string_view text);
  // Writes a part of a response. A terminal shows reasoning dimmed; a pipe does not get it.
  bool show_reasoning(std::string_view text);
  bool show_content(std::string_view text);
  // Ends the line of a response.
  bool end();
  // Writes a dimmed line, on a terminal only.
  void note(const std::string& text);

 private:
  bool show(std::string_view text, bool reasoning);
  bool put(const std::string& bytes);
  bool terminal_, styled_;
  bool dim_ = false;         // dimmed text is on
  bool line_begun_ = false;  // part of the response is on the screen
};

}  // namespace sluice::cli

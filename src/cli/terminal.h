// The two ends of a conversation in a terminal: lines that a person edits, or that a pipe delivers,
// and signals. Ctrl-C and SIGTERM are waited for by a thread, so that no handler has to be
// async-signal-safe; whoever waits for a line is woken through a pipe.
#pragma once

#include <signal.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "base/status.h"

namespace sluice::cli {

class Signals {
 public:
  // Blocks the signals in this thread and those that begin after it.
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // Until this is called, a signal ends the process at once: a model that is being loaded may wait
  // for ever. From here on one interrupts what is under way; `wake` is called after each, by the
  // thread of signals.
  void handle(std::function<void()> wake);
  // Ctrl-C, or the end of the program, was asked for since the last clear().
  [[nodiscard]] bool interrupted() const { return interrupted_.load(); }
  [[nodiscard]] bool terminated() const { return terminated_.load(); }
  void clear();
  // Readable while interrupted().
  [[nodiscard]] int descriptor() const { return pipe_[0]; }

 private:
  void loop();
  sigset_t set_;
  int pipe_[2];
  std::mutex mutex_;
  std::function<void()> wake_;  // empty: not yet handled
  std::atomic<bool> interrupted_{false}, terminated_{false};
  std::thread thread_;
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

  [[nodiscard]] bool interactive() const { return editor_ != nullptr; }
  // The next line, in UTF-8 and without its end. Of one that is too long the rest is passed over.
  [[nodiscard]] Input read(std::string* line);

 private:
  struct Editor;
  enum class Byte : uint8_t { kRead, kEnd, kInterrupted };
  // One byte of standard input, or word that there is none.
  Byte next(char* byte);
  Input read_plain(std::string* line);
  Input read_edited(std::string* line);

  Signals& signals_;
  std::unique_ptr<Editor> editor_;  // null: lines are read plainly
  std::string buffer_;
  size_t at_ = 0;
};

// What a terminal may show of a text: control characters but newlines and tabs become '?'.
[[nodiscard]] std::string shown(std::string_view text);

}  // namespace sluice::cli

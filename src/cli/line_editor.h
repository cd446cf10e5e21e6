// Line editing with a history, by libedit. Builds without libedit have none (line_editor_stub.cpp),
// as on Windows, whose console edits lines itself.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace sluice::cli {

// Result of waiting for one byte of input.
enum class Byte : uint8_t { kRead, kEnd, kInterrupted };

class LineEditor {
 public:
  // `next` waits for a byte. Returns null if there is no editor. `prompt` must outlive it.
  [[nodiscard]] static std::unique_ptr<LineEditor> create(const char* prompt,
                                                          std::function<Byte(char*)> next);
  virtual ~LineEditor() = default;
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // Whether it reads pasted text as part of a line, line ends included, where the terminal marks it
  // (platform::BracketedPaste).
  [[nodiscard]] virtual bool takes_pastes() const = 0;
  // Reads the next line, with its line end. False: end of input, or interrupted.
  [[nodiscard]] virtual bool read(std::string* line) = 0;
  virtual void remember(const std::string& line) = 0;

 protected:
  LineEditor() = default;
};

}  // namespace sluice::cli

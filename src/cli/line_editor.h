// A line that a person edits, with a history: libedit, or nothing where a build has no such library
// (line_editor_stub.cpp). Windows' console edits lines by itself.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace sluice::cli {

// What came of waiting for a byte of input.
enum class Byte : uint8_t { kRead, kEnd, kInterrupted };

class LineEditor {
 public:
  // `next` waits for a byte. Null where there is no editor; `prompt` outlives it.
  [[nodiscard]] static std::unique_ptr<LineEditor> create(const char* prompt,
                                                          std::function<Byte(char*)> next);
  virtual ~LineEditor() = default;
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // The next line, with its end. False: there is none.
  [[nodiscard]] virtual bool read(std::string* line) = 0;
  virtual void remember(const std::string& line) = 0;

 protected:
  LineEditor() = default;
};

}  // namespace sluice::cli

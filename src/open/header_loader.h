// What opening a file and opening a directory have in common: what is wanted next, where it is
// written, and the beginnings of the model's files. What comes when is the course's own.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/aligned.h"
#include "open/opener.h"

namespace sluice::open {

// First bytes of a file that are read before its parser says how many it takes: a small model's
// header is small, and its budget may be too; a later part has nothing but a few tensors there.
inline constexpr uint64_t kMaxFirstBytes = 1 << 20;
inline constexpr uint64_t kMinFirstBytes = 1 << 16;

// Memory that may be refused, for bytes that stay where they are until more of them are wanted. (A
// vector would end the program when a browser's heap is full.)
struct Block {
  AlignedBuffer memory;

  // What is held stays at the front.
  [[nodiscard]] bool grow(uint64_t bytes) {
    AlignedBuffer larger;
    if (!larger.allocate(bytes).ok()) return false;
    if (memory.size() > 0)
      std::memcpy(larger.data(), memory.data(), std::min(memory.size(), larger.size()));
    memory.swap(larger);
    return true;
  }
  [[nodiscard]] std::span<uint8_t> bytes() const { return {memory.as<uint8_t>(), memory.size()}; }
  [[nodiscard]] std::string_view text() const { return {memory.as<char>(), memory.size()}; }
};

struct File {
  uint64_t size = 0;
  uint64_t wanted = 0;  // bytes of the prefix that the parser is to see next
  Block prefix;
};

[[nodiscard]] Status no_memory(uint64_t bytes);

struct HeaderLoader {
  explicit HeaderLoader(Source from) : source(std::move(from)) {}
  virtual ~HeaderLoader() = default;

  // Says in `need` what is wanted next.
  virtual Status next() = 0;
  // What was wanted is in `into`.
  virtual Status take() = 0;
  // An optional text is not there.
  virtual void skip() {}
  // A file that is opened has so many bytes: what to read of it first.
  [[nodiscard]] virtual uint64_t first_bytes(uint64_t size) const = 0;
  // What to call the file that is read.
  [[nodiscard]] virtual const char* reading() const = 0;
  [[nodiscard]] virtual Status missing(std::string_view why) const = 0;

  void advance() {
    if (failure.ok()) failure = next();
  }
  Status want(FileRequestKind what, std::string name, uint32_t choice);
  Status want_bytes();
  Status ask_for(uint64_t bytes);
  [[nodiscard]] Status truncated() const;
  // A chosen file by its name, wherever it lies.
  [[nodiscard]] std::optional<uint32_t> chosen(std::string_view name) const;

  Source source;
  FileRequest need;
  Status failure;
  Block* into = nullptr;  // of kBytes and kText
  bool reserved = false;

  std::vector<File> files;  // those that are open; of the first n_parsed the header is known
  uint32_t n_parsed = 0;

  gguf::Header header;
  std::vector<qsf::Run> runs;  // of a QSF file
  std::string made;
  std::vector<hf::Derived> derived;
};

[[nodiscard]] std::unique_ptr<HeaderLoader> file_course(Source source);
[[nodiscard]] std::unique_ptr<HeaderLoader> directory_course(Source source);
inline constexpr const char* kConfigName = "config.json";

}  // namespace sluice::open

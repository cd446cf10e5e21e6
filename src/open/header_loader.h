// The common part of loading headers from a file and from a directory: the next request, the buffer
// for its bytes, and the prefixes of the model's files. Each loader decides the order of requests.
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

// Limits of the first read of a file, before its parser says how many bytes it needs. A small model
// has a small header, and perhaps a small budget. Later files of a split model list a few tensors
// only.
inline constexpr uint64_t kMaxFirstBytes = 1 << 20;
inline constexpr uint64_t kMinFirstBytes = 1 << 16;

// A byte buffer whose allocation can fail. (A vector would abort the program when a browser's heap
// is full.)
struct Block {
  AlignedBuffer memory;

  // Keeps the current contents at the front.
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
  uint64_t wanted = 0;  // length of the prefix for the parser's next attempt
  Block prefix;
};

[[nodiscard]] Status no_memory(uint64_t bytes);

struct HeaderLoader {
  explicit HeaderLoader(Source from) : source(std::move(from)) {}
  virtual ~HeaderLoader() = default;

  // Sets `need` to the next request.
  virtual Status next() = 0;
  // Parses the requested bytes, which are in `into`.
  virtual Status take() = 0;
  // Called when an optional text does not exist.
  virtual void skip() {}
  // How many bytes to read first of a file of `size` bytes.
  [[nodiscard]] virtual uint64_t first_bytes(uint64_t size) const = 0;
  // The name of the current file in messages.
  [[nodiscard]] virtual const char* reading() const = 0;
  [[nodiscard]] virtual Status missing(std::string_view why) const = 0;

  void advance() {
    if (failure.ok()) failure = next();
  }
  Status want(FileRequestKind what, std::string name, uint32_t choice);
  Status want_bytes();
  Status ask_for(uint64_t bytes);
  [[nodiscard]] Status truncated() const;
  // The index of a chosen file by its base name.
  [[nodiscard]] std::optional<uint32_t> chosen(std::string_view name) const;

  Source source;
  FileRequest need;
  Status failure;
  Block* into = nullptr;  // of kBytes and kText
  bool reserved = false;

  std::vector<File> files;  // open files; the headers of the first n_parsed have been parsed
  uint32_t n_parsed = 0;

  gguf::Header header;
  std::vector<qsf::Run> runs;  // of a QSF file
  std::string made;
  std::vector<hf::Derived> derived;
};

[[nodiscard]] std::unique_ptr<HeaderLoader> file_loader(Source source);
[[nodiscard]] std::unique_ptr<HeaderLoader> directory_loader(Source source);
inline constexpr const char* kConfigName = "config.json";

}  // namespace sluice::open

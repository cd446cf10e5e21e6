// An output file of a command. It gets its name only when it is complete: data goes to a temporary
// file beside it, which is then renamed. A command that fails or is killed leaves an existing file
// as it was. Pipes and devices such as /dev/stdout are written in place. An output that is one of
// the model's own files is refused, under any path.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "base/status.h"
#include "platform/console.h"

namespace sluice::cli {

enum class Existing : uint8_t { kReplace, kKeep };

class AtomicFile {
 public:
  // Errors: kInvalidArgument when `path` is a file of `model`, or exists and is kept; kIo.
  [[nodiscard]] static Result<AtomicFile> create(const std::string& path, const std::string& model,
                                                 Existing existing = Existing::kReplace);
  AtomicFile(AtomicFile&&) = default;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  // Appends `n` bytes. finish() returns the first failure.
  void write(const void* bytes, size_t n);
  // Overwrites `n` bytes that were already written at `offset`. Fails on a pipe.
  void write_at(uint64_t offset, const void* bytes, size_t n);
  // Whether a write has failed; later writes have no effect.
  [[nodiscard]] bool failed() const { return failed_; }
  // Flushes to disk, closes and renames the file. Errors: kIo naming the file.
  [[nodiscard]] Status finish();

 private:
  AtomicFile() = default;
  [[nodiscard]] bool take_name();
  struct Close {
    void operator()(std::FILE* file) const { (void)std::fclose(file); }
  };
  std::unique_ptr<std::FILE, Close> file_;
  std::string path_, target_;
  std::string beside_;  // temporary name until finish(); "": written in place
  bool failed_ = false;
};

// Ends the process at once with Ctrl-C's exit status. Deletes files that are being written and
// prevents any later rename. Callable from any thread; does not return.
[[noreturn]] void end_interrupted();

// While it lives, Ctrl-C and a request to terminate call end_interrupted(). Create it before any
// thread of the command. Only one such object, or one other platform::SignalThread, may exist.
class EndsAtSignals {
  platform::SignalThread signals_{[](bool) { end_interrupted(); }};
};

}  // namespace sluice::cli

// A file that a command writes: it appears under its name only when it is whole, so that a command
// that fails, or is killed, leaves what was there. It is written beside that name and renamed; what
// is no regular file (a pipe, /dev/stdout) is written in place. An output that is one of the files
// that the model is read from is refused, by whatever name.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "base/status.h"
#include "platform/console.h"

namespace sluice::cli {

class AtomicFile {
 public:
  // Errors: kInvalidArgument when `path` is a file of `model`, kIo.
  [[nodiscard]] static Result<AtomicFile> create(const std::string& path, const std::string& model);
  AtomicFile(AtomicFile&&) = default;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  // A failure is kept, and is what finish() returns.
  void write(const void* bytes, size_t n);
  // The same over bytes that were written; a pipe cannot do that.
  void write_at(uint64_t offset, const void* bytes, size_t n);
  // Whether a write has failed: what follows is in vain.
  [[nodiscard]] bool failed() const { return failed_; }
  // Closes the file, once it is on the disk, and gives it its name. Errors: kIo naming the file.
  [[nodiscard]] Status finish();

 private:
  AtomicFile() = default;
  [[nodiscard]] bool take_name();
  struct Close {
    void operator()(std::FILE* file) const { (void)std::fclose(file); }
  };
  std::unique_ptr<std::FILE, Close> file_;
  std::string path_, target_;
  std::string beside_;  // the name until the file is whole; "": written in place
  bool failed_ = false;
};

// Ends the process at once, with the status of what Ctrl-C ends, from any thread but for good: no
// file that is being written stays, and none appears under its name after this.
[[noreturn]] void end_interrupted();

// While it lives, Ctrl-C and the request to end do that. One such object, or another
// platform::SignalThread, at a time, before any thread of the command's own.
class EndsAtSignals {
  platform::SignalThread signals_{[](bool) { end_interrupted(); }};
};

}  // namespace sluice::cli

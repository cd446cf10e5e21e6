// Simulates a full disk: while it lives, no file of this process grows beyond a number of bytes.
// Not on Windows, which has no such limit.
#pragma once

#include <csignal>
#include <cstdint>

#if !defined(_WIN32)
#include <sys/resource.h>
#endif

namespace sluice::test {

class FileLimit {
 public:
#if defined(_WIN32)
  explicit FileLimit(uint64_t) {}
  ~FileLimit() {}
#else
  explicit FileLimit(uint64_t bytes) : signal_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, signal_);
  }
#endif
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

#if !defined(_WIN32)
 private:
  void (*signal_)(int);
  rlimit before_{};
#endif
};

}  // namespace sluice::test

// Runs other programs, without a shell.
#pragma once

#include <string>
#include <vector>

namespace sluice::platform {

struct ProcessResult {
  int status = -1;             // exit status; 128 + the signal that ended it
  std::string output, errors;  // the first and the last kMaxProcessOutput bytes
};
inline constexpr size_t kMaxProcessOutput = 1 << 20;

// Path of a program in `directory`, or in one of PATH's directories if that is "". "": none.
[[nodiscard]] std::string find_program(const std::string& name, const std::string& directory);

// Runs the program at `path` with empty standard input, and waits for its end. False: it cannot be
// started. On Windows no program can be.
[[nodiscard]] bool run_program(const std::string& path, const std::vector<std::string>& arguments,
                               ProcessResult* result);

}  // namespace sluice::platform

// The spellings of llama.cpp and ollama, rewritten before parsing: CLI11 has no names of several
// letters after one dash. What this program does otherwise is answered with what to use.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/status.h"

namespace sluice::cli {

// Rewrites the names of commands and options, such as -hf REPO to --model hf:REPO, and -ctk K and
// -ctv V to --kv-type K,V. Names that `app` has itself, values of its options and arguments after
// "--" are kept as they are. Errors: kInvalidArgument for what is not here, with what to use.
[[nodiscard]] Result<std::vector<std::string>> translate_spellings(
    const CLI::App& app, const std::vector<std::string>& arguments);

}  // namespace sluice::cli

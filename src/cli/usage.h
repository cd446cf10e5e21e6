// The help of the program, and what a wrong command line is answered with.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/status.h"

namespace sluice::cli {

// The commands by group, on one screen.
[[nodiscard]] std::string main_help(const CLI::App& app);

// Names the word that the parser did not accept. `arguments`: without the program's name.
[[nodiscard]] Status usage_error(const CLI::App& app, const std::vector<std::string>& arguments,
                                 const CLI::ParseError& problem);

}  // namespace sluice::cli

// Adds options of the table (options/options.h) to a subcommand.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/cli.h"
#include "options/options.h"

namespace sluice::cli {

// The help text of a row, with its default.
[[nodiscard]] std::string help_of(const options::Option& row);
// Checks a value of the option against the row's range.
CLI::Option* check_range(CLI::Option* option, const options::Option& row);

// Adds the option of a row, which is stored in *into.
template <class T>
CLI::Option* add_known(CLI::App& app, const options::Option& row, T& into) {
  return check_range(app.add_option(row.cli, into, help_of(row)), row);
}

}  // namespace sluice::cli

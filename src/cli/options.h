// Adds options of the table (options/options.h) to a subcommand.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/cli.h"
#include "options/options.h"

namespace sluice::cli {

// The help text of a row, with its default.
[[nodiscard]] std::string help_of(const options::Option& row);
// Limits the values of an option to the row's range.
CLI::Option* limit(CLI::Option* option, const options::Option& row);

// Adds the option of a row, which is stored in *into.
template <class T>
CLI::Option* add_known(CLI::App& app, const options::Option& row, T& into) {
  return limit(app.add_option(row.cli, into, help_of(row)), row);
}

}  // namespace sluice::cli

// `sluice`, the terminal program. Each subcommand has its own file.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "cli/cli.h"
#include "cli/nearest.h"
#include "cli/spellings.h"
#include "platform/console.h"

namespace {

using sluice::Status;

// Says which word the parser did not know. `arguments`: without the program's name.
Status explained(const CLI::App& app, const std::vector<std::string>& arguments,
                 const CLI::ParseError& problem) {
  using sluice::cli::did_you_mean;
  constexpr auto kCode = sluice::Code::kInvalidArgument;
  const CLI::App* command = nullptr;
  std::vector<std::string> names;
  for (const CLI::App* each : app.get_subcommands(nullptr)) {
    names.push_back(each->get_name());
    if (each->get_name() == arguments[0]) command = each;
  }
  const std::string first = arguments[0].substr(0, 64);
  if (command == nullptr && first.starts_with('-')) {
    return sluice::error(
        kCode, "the command comes before %s, such as sluice run; sluice --help lists the commands",
        first.c_str());
  }
  if (command == nullptr) {
    return sluice::error(kCode, "\"%s\" is not a command%s; sluice --help lists the commands",
                         first.c_str(), did_you_mean(first, names).c_str());
  }
  if (problem.get_exit_code() != static_cast<int>(CLI::ExitCodes::ExtrasError)) {
    return sluice::error(kCode, "%s", problem.what());
  }
  names.clear();
  for (const CLI::Option* option : command->get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  for (const std::string& argument : arguments) {
    const std::string name = argument.substr(0, argument.find('='));
    if (name == "--") break;
    const bool known = std::find(names.begin(), names.end(), name) != names.end();
    if (known || !name.starts_with("--")) continue;
    return sluice::error(kCode, "%.64s is not an option%s; sluice %s --help lists them",
                         name.c_str(), did_you_mean(name, names).c_str(),
                         command->get_name().c_str());
  }
  return sluice::error(kCode, "%s", problem.what());
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> arguments = sluice::platform::begin_console(argc, argv);
  CLI::App app{"Runs GGUF language models within a memory budget."};
  app.name("sluice");
  app.set_version_flag("--version", SLUICE_VERSION);
  app.require_subcommand(1);
  app.allow_windows_style_options(false);  // an argument that starts with '/' is a path or text
  int status = 0;
  sluice::cli::add_run(app, &status);
  sluice::cli::add_tokenize(app, &status);
  sluice::cli::add_logits(app, &status);
  sluice::cli::add_embed(app, &status);
  sluice::cli::add_dump(app, &status);
  sluice::cli::add_bench(app, &status);
  sluice::cli::add_info(app, &status);
  sluice::cli::add_perplexity(app, &status);
  sluice::cli::add_compare(app, &status);
  sluice::cli::add_cache(app, &status);
  sluice::cli::add_check(app, &status);
  sluice::cli::add_serve(app, &status);
  sluice::cli::add_convert(app, &status);
  sluice::cli::add_chat(app, &status);
  sluice::Result<std::vector<std::string>> known = sluice::cli::translate_spellings(arguments);
  if (!known.ok()) {
    sluice::cli::fail(known.status());
    return 2;
  }
  arguments = std::move(*known);
  if (arguments.empty()) {
    std::fputs(app.help().c_str(), stderr);
    return 2;
  }
  try {
    // CLI11 expects the last one first.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) {  // --help, --version
      app.exit(e);
      return sluice::cli::finish_output();
    }
    sluice::cli::fail(explained(app, arguments, e));
    return 2;
  }
  return status != 0 ? status : sluice::cli::finish_output();
}

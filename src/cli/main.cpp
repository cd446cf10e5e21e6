// `sluice`, the terminal program. Each subcommand has its own file.
#include <string>
#include <utility>
#include <vector>

#include "cli/cli.h"
#include "cli/spellings.h"
#include "cli/usage.h"
#include "platform/console.h"

int main(int argc, char** argv) {
  std::vector<std::string> arguments = sluice::platform::begin_console(argc, argv);
  CLI::App app{"Runs GGUF language models within a memory budget."};
  app.name("sluice");
  app.set_version_flag("--version", SLUICE_VERSION);
  app.require_subcommand(1);
  app.allow_windows_style_options(false);  // an argument that starts with '/' is a path or text
  int status = 0;
  for (const auto add :
       {sluice::cli::add_run, sluice::cli::add_chat, sluice::cli::add_serve, sluice::cli::add_embed,
        sluice::cli::add_info, sluice::cli::add_tokenize, sluice::cli::add_layout,
        sluice::cli::add_encode, sluice::cli::add_check, sluice::cli::add_bench,
        sluice::cli::add_perplexity, sluice::cli::add_compare, sluice::cli::add_logits,
        sluice::cli::add_dump, sluice::cli::add_convert, sluice::cli::add_cache}) {
    add(app, &status);
  }
  sluice::Result<std::vector<std::string>> known = sluice::cli::translate_spellings(app, arguments);
  if (!known.ok()) {
    sluice::cli::fail(known.status());
    return 2;
  }
  arguments = std::move(*known);
  if (arguments.empty()) {
    std::fputs(sluice::cli::main_help(app).c_str(), stderr);
    return 2;
  }
  if (arguments[0] == "--help" || arguments[0] == "-h") {
    std::fputs(sluice::cli::main_help(app).c_str(), stdout);
    return sluice::cli::finish_output();
  }
  try {
    // CLI11 expects the last one first.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) {  // --help, --version
      app.exit(e);
      return sluice::cli::finish_output();
    }
    sluice::cli::fail(sluice::cli::usage_error(app, arguments, e));
    return 2;
  }
  return status != 0 ? status : sluice::cli::finish_output();
}

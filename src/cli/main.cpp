// `sluice`, the terminal program. Each subcommand has its own file.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "cli/cli.h"
#include "cli/spellings.h"
#include "gguf/printable.h"
#include "platform/console.h"

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
  try {
    std::reverse(arguments.begin(), arguments.end());  // the order that CLI11 expects
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) {  // --help, --version
      app.exit(e);
      return sluice::cli::finish_output();
    }
    const std::string what = e.what();
    std::fprintf(stderr, "sluice: %s [INVALID_ARGUMENT]\n",
                 sluice::gguf::printable(what, what.size()).c_str());
    return 2;
  }
  return status != 0 ? status : sluice::cli::finish_output();
}

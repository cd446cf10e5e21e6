// Stands for serve.cpp in a build without cpp-httplib: the command is known, and refused by name.
#include "cli/cli.h"

namespace sluice::cli {

void add_serve(CLI::App& app, int* status) {
  CLI::App* sub = app.add_subcommand("serve", "Answer OpenAI's API over HTTP (not in this build)");
  sub->allow_extras();
  sub->callback(
      [status] { *status = fail(error(Code::kInvalidArgument, "this build has no server")); });
}

}  // namespace sluice::cli

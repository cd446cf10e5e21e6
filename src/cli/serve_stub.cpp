// Replaces serve.cpp in a build without cpp-httplib: the command reports that it is unavailable.
#include "cli/cli.h"

namespace sluice::cli {

void add_serve(CLI::App& app, int* status) {
  CLI::App* sub = add_command(app, kUse, "serve", "Serve an API over HTTP (not in this build)", "");
  sub->allow_extras();
  sub->callback([status] {
    *status =
        fail(error(Code::kInvalidArgument, "this build has no server; rebuild with cpp-httplib"));
  });
}

}  // namespace sluice::cli

// Replaces cache.cpp in a build without libcurl: the commands exist and report that they are
// unavailable.
#include "cli/cli.h"

namespace sluice::cli {

void add_cache(CLI::App& app, int* status) {
  for (const char* name : {"pull", "list", "show", "rm"}) {
    CLI::App* sub = add_command(app, kCache, name, "The model cache (not in this build)", "");
    sub->allow_extras();
    sub->callback([status] {
      *status = fail(
          error(Code::kInvalidArgument,
                "this build has no HTTP support, so it has no model cache; rebuild with libcurl"));
    });
  }
}

}  // namespace sluice::cli

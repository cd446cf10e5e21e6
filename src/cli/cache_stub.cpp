// Replaces cache.cpp in a build without libcurl: the command exists and reports that it is
// unavailable.
#include "cli/cli.h"

namespace sluice::cli {

void add_cache(CLI::App& app, int* status) {
  CLI::App* sub =
      app.add_subcommand("cache", "List, delete or evict downloaded models (not in this build)");
  sub->allow_extras();
  sub->callback([status] {
    *status = fail(
        error(Code::kInvalidArgument,
              "this build has no HTTP support, so it has no model cache; rebuild with libcurl"));
  });
}

}  // namespace sluice::cli

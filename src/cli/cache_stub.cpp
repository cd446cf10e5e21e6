// Stands for cache.cpp in a build without libcurl: the command is known, and refused by name.
#include "cli/cli.h"

namespace sluice::cli {

void add_cache(CLI::App& app, int* status) {
  CLI::App* sub = app.add_subcommand("cache", "What a cache directory holds (not in this build)");
  sub->allow_extras();
  sub->callback([status] {
    *status = fail(error(Code::kInvalidArgument, "this build has no network, and no cache"));
  });
}

}  // namespace sluice::cli

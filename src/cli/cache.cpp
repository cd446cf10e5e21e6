// `sluice cache`: lists, deletes and evicts the models in a cache directory. The browser's model
// cache has the same three operations.
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "cli/cli.h"
#include "gguf/printable.h"
#include "io/address.h"
#include "io/cache_native.h"
#include "platform/calendar.h"

namespace sluice::cli {
namespace {

struct CacheOptions {
  std::string dir, url, size;
  bool json = false;
};

// URLs come from files in the directory.
std::string shown_url(const std::string& url) {
  return gguf::printable(url, url.size());
}

int list(const CacheOptions& options) {
  nlohmann::json out = nlohmann::json::array();
  for (const io::CacheEntry& entry : io::list_cache(options.dir)) {
    if (options.json) {
      out.push_back({{"url", entry.url},
                     {"size", entry.size},
                     {"bytesCached", entry.stored_bytes},
                     {"complete", entry.complete},
                     {"used", entry.used}});
      continue;
    }
    char day[32] = "";
    const std::tm used = platform::utc_time(static_cast<std::time_t>(entry.used));
    std::strftime(day, sizeof day, "%Y-%m-%d", &used);
    std::printf("%s  %10s of %10s  %s\n", day, human_bytes(entry.stored_bytes).c_str(),
                human_bytes(entry.size).c_str(), shown_url(entry.url).c_str());
  }
  if (options.json) {
    print_json(out, 2);
  }
  return 0;
}

int remove(const CacheOptions& options) {
  const Result<bool> found = io::delete_cached(options.dir, options.url);
  if (!found.ok()) return fail(found.status());
  if (*found) return 0;
  return fail(
      error(Code::kNotFound, "%s is not in the cache", io::public_address(options.url).c_str()));
}

int evict(const CacheOptions& options) {
  // Elsewhere an empty size means the default; here it would delete everything.
  if (options.size.empty())
    return fail(error(Code::kInvalidArgument, "\"\" is not a size such as 8G"));
  const Result<uint64_t> bytes = parse_size(options.size);
  if (!bytes.ok()) return fail(bytes.status());
  for (const std::string& url : io::evict_cache(options.dir, *bytes)) {
    std::printf("%s\n", shown_url(url).c_str());
  }
  return 0;
}

}  // namespace

void add_cache(CLI::App& app, int* status) {
  auto options = std::make_shared<CacheOptions>();
  CLI::App* sub =
      app.add_subcommand("cache", "List, delete or evict models downloaded with --cache-dir");
  sub->add_option("--cache-dir", options->dir, "the directory given to the other commands")
      ->required();
  sub->require_subcommand(1);
  CLI::App* show =
      sub->add_subcommand("list", "List the models in the cache, most recently used first");
  show->add_flag("--json", options->json, "print JSON instead of text (default: off)");
  show->callback([options, status] { *status = list(*options); });
  CLI::App* drop = sub->add_subcommand("delete", "Delete one model");
  drop->add_option("URL", options->url)->required();
  drop->callback([options, status] { *status = remove(*options); });
  CLI::App* shrink = sub->add_subcommand("evict", "Delete the least recently used models");
  shrink->add_option("SIZE", options->size, "bytes that may remain in the cache, such as 8G")
      ->required();
  shrink->callback([options, status] { *status = evict(*options); });
}

}  // namespace sluice::cli

// Commands for the model cache: list, pull, rm and show. `npx sluice-llm` has the same ones, and
// the same cache.
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <ctime>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/cli.h"
#include "cli/progress.h"
#include "gguf/printable.h"
#include "io/address.h"
#include "io/cache_native.h"
#include "io/default_cache_native.h"
#include "native/hub_files.h"
#include "native/hugging_face.h"
#include "platform/calendar.h"

namespace sluice::cli {
namespace {

constexpr int kPullThreads = 4;
constexpr uint64_t kPiece = io::kCacheBlockBytes;

struct CacheOptions {
  std::string dir, model, max_size;
  HostOptions hosts;
  bool json = false, quiet = false;
};

std::string day_of(int64_t milliseconds) {
  char day[32] = "";
  const std::tm when = platform::utc_time(static_cast<std::time_t>(milliseconds / 1000));
  std::strftime(day, sizeof day, "%Y-%m-%d", &when);
  return day;
}

// An address without control characters.
std::string visible(const std::string& text) {
  return gguf::printable(text, text.size());
}

nlohmann::json json_of(const io::CacheEntry& entry) {
  return {
      {"url", entry.url},           {"size", entry.size},       {"bytesCached", entry.stored_bytes},
      {"complete", entry.complete}, {"created", entry.created}, {"used", entry.used}};
}

Status no_cache() {
  return error(Code::kInvalidArgument,
               "there is no model cache: set --cache-dir or SLUICE_CACHE to a directory");
}

Status not_cached(const std::string& model) {
  return error(Code::kNotFound, "%s is not in the cache", io::public_source(model).c_str());
}

// The entry of an address, of a hf: reference, or of a file name that only one cached model has.
std::optional<io::CacheEntry> find(const CacheOptions& options) {
  if (native::HubReference::is_one(options.model)) {
    std::vector<io::CachedModel> models;
    for (const io::CacheEntry& entry : io::list_cache(options.dir)) {
      models.push_back({entry.url, entry.size});
    }
    const Result<std::string> url = native::cached_model(options.model, models);
    if (!url.ok() || url->empty()) return std::nullopt;
    return io::find_cached(options.dir, *url);
  }
  if (auto entry = io::find_cached(options.dir, options.model)) return entry;
  std::optional<io::CacheEntry> found;
  for (io::CacheEntry& entry : io::list_cache(options.dir)) {
    const std::string path = io::public_address(entry.url);
    if (!path.ends_with("/" + options.model)) continue;
    if (found) return std::nullopt;
    found = std::move(entry);
  }
  return found;
}

int list(const CacheOptions& options) {
  nlohmann::json out = nlohmann::json::array();
  for (const io::CacheEntry& entry : io::list_cache(options.dir)) {
    out.push_back(json_of(entry));
    if (options.json) continue;
    std::printf("%s  %10s of %10s  %s\n", day_of(entry.used).c_str(),
                human_bytes(entry.stored_bytes).c_str(), human_bytes(entry.size).c_str(),
                visible(entry.url).c_str());
  }
  if (options.json) print_json(out, 2);
  return 0;
}

int show(const CacheOptions& options) {
  const std::optional<io::CacheEntry> entry = find(options);
  if (!entry) return fail(not_cached(options.model));
  nlohmann::json out = json_of(*entry);
  out["files"] = nlohmann::json::array();
  for (const io::CachedFile& file : entry->files) {
    out["files"].push_back({{"url", file.header.url},
                            {"size", file.header.size},
                            {"bytesCached", file.stored_bytes},
                            {"etag", file.header.etag},
                            {"lastModified", file.header.last_modified},
                            {"path", file.path}});
  }
  if (options.json) {
    print_json(out, 2);
    return 0;
  }
  const auto line = [](const char* label, const std::string& value) {
    std::printf("%-8s %s\n", label, visible(value).c_str());
  };
  line("model", entry->url);
  line("cached", human_bytes(entry->stored_bytes) + " of " + human_bytes(entry->size) +
                     (entry->complete ? ", complete" : ""));
  line("created", day_of(entry->created));
  line("used", day_of(entry->used));
  for (const io::CachedFile& file : entry->files) {
    line("file", file.header.url);
    line("  cached", human_bytes(file.stored_bytes) + " of " + human_bytes(file.header.size));
    line("  path", file.path);
  }
  return 0;
}

int remove(const CacheOptions& options) {
  if (!options.max_size.empty()) {
    const Result<uint64_t> bytes = parse_size(options.max_size);
    if (!bytes.ok()) return fail(bytes.status());
    const std::vector<std::string> evicted = io::evict_cache(options.dir, *bytes);
    if (options.json) print_json(evicted, 2);
    for (const std::string& url : evicted) {
      if (!options.json) std::printf("%s\n", visible(url).c_str());
    }
    return 0;
  }
  const std::optional<io::CacheEntry> entry = find(options);
  if (!entry) return fail(not_cached(options.model));
  const Result<bool> found = io::delete_cached(options.dir, entry->url);
  if (!found.ok()) return fail(found.status());
  if (options.json) print_json(nlohmann::json{entry->url}, 2);
  return 0;
}

// Reads what the cache lacks of one file. Threads take pieces in file order.
// `done` calls back with the bytes that were fetched of it.
Status pull_file(io::ByteSource& source, const std::function<void(uint64_t)>& done) {
  std::atomic<uint64_t> next{0};
  std::mutex mutex;
  Status failure;
  const auto work = [&] {
    std::vector<uint8_t> piece(kPiece);
    for (;;) {
      const uint64_t at = next.fetch_add(kPiece);
      if (at >= source.size()) return;
      const auto length = static_cast<size_t>(std::min(kPiece, source.size() - at));
      const Status status = source.read(at, std::span(piece).first(length));
      const std::lock_guard<std::mutex> lock(mutex);
      if (!status.ok() && failure.ok()) failure = status;
      if (!failure.ok()) return;
      done(source.bytes_fetched());
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kPullThreads; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  return failure;
}

Status pull_files(const std::vector<std::unique_ptr<io::ByteSource>>& files, uint64_t size,
                  uint64_t missing, bool quiet) {
  Progress progress("downloading", Unit::kBytes, quiet);
  uint64_t cached = size - missing;
  progress.update(cached, size);
  for (const auto& file : files) {
    const uint64_t lacking = file->bytes_missing();
    if (lacking == 0) continue;
    const auto update = [&](uint64_t fetched) {
      progress.update(cached + std::min(fetched, lacking), size);
    };
    SLUICE_RETURN_IF_ERROR(pull_file(*file, update));
    cached += lacking;
    if (file->bytes_missing() > 0) {
      return error(Code::kIo, "the model does not fit in the cache");
    }
  }
  return {};
}

int pull(const CacheOptions& options) {
  const Result<io::OpenOptions> open = source_options(options.dir, options.hosts, options.model);
  if (!open.ok()) return fail(open.status());
  Result<native::ModelHeader> header = native::read_header(options.model, *open);
  if (!header.ok()) return fail(header.status());
  if (!header->remote) {
    return fail(error(Code::kInvalidArgument, "%s is a local file, which needs no cache",
                      io::public_source(options.model).c_str()));
  }
  std::vector<std::unique_ptr<io::ByteSource>> files;
  uint64_t size = 0, missing = 0;
  for (const std::string& address : header->addresses) {
    auto file = io::open_source(address, *open);
    if (!file.ok()) return fail(file.status());
    size += (*file)->size();
    missing += (*file)->bytes_missing();
    files.push_back(std::move(*file));
  }
  if (const Status status = pull_files(files, size, missing, options.quiet); !status.ok()) {
    return fail(status);
  }
  const std::optional<io::CacheEntry> entry = io::find_cached(options.dir, header->addresses[0]);
  if (options.json && entry) print_json(json_of(*entry), 2);
  if (!options.json)
    std::printf("%s is cached (%s)\n", visible(io::public_source(options.model)).c_str(),
                human_bytes(size).c_str());
  return 0;
}

CLI::App* add_cache_command(CLI::App& app, int* status, const char* name, const char* what,
                            const char* example, const std::shared_ptr<CacheOptions>& options,
                            int (*run)(const CacheOptions&)) {
  CLI::App* sub = add_command(app, kCache, name, what, example);
  add_cache_dir(*sub, options->dir);
  sub->add_flag("--json", options->json, "print JSON instead of text (default: off)");
  sub->callback([options, status, run] {
    *status = options->dir.empty() ? fail(no_cache()) : run(*options);
  });
  return sub;
}

}  // namespace

void add_cache(CLI::App& app, int* status) {
  auto options = std::make_shared<CacheOptions>();
  const auto model = [&](CLI::App* sub, const char* what) {
    return sub->add_option("MODEL,-m,--model", options->model, what);
  };
  CLI::App* pulls = add_cache_command(app, status, "pull", "Download a model; resumes",
                                      "sluice pull hf:OWNER/REPO:Q4_K_M", options, pull);
  model(
      pulls,
      "http(s) URL of a GGUF or QSF file or of a Hugging Face directory, or hf:owner/repo[:Q4_K_M]")
      ->required();
  add_hosts(*pulls, options->hosts);
  add_quiet(*pulls, options->quiet);
  add_cache_command(app, status, "list", "List the cached models", "sluice list", options, list);
  CLI::App* shows = add_cache_command(app, status, "show", "Show a cached model and its files",
                                      "sluice show model.gguf", options, show);
  model(shows, "address, hf: reference or file name of a cached model")->required();
  CLI::App* removes = add_cache_command(app, status, "rm", "Delete a cached model",
                                        "sluice rm model.gguf", options, remove);
  model(removes, "address, hf: reference or file name of a cached model");
  removes
      ->add_option("--max-size", options->max_size,
                   "deletes the least recently used models instead, until at most this many "
                   "bytes such as 8G remain (default: none)")
      ->check(byte_size(0, UINT64_MAX));
  removes->parse_complete_callback([options, removes] {
    if (removes->count("MODEL") + removes->count("--max-size") != 1) {
      throw CLI::ValidationError("give either MODEL or --max-size");
    }
  });
}

}  // namespace sluice::cli

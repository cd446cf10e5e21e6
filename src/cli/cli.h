// What the subcommands of `sluice` share: options that every one takes, parsing of sizes and token
// lists, opening of models, and the one way to fail (a sentence on stderr, a non-zero exit).
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "native/model_file.h"

namespace sluice::cli {

struct Common {
  std::string model;
  std::string memory_budget;  // "64M"
  std::string kernels;
  std::string cache_dir;
  int threads = 0;
  int ctx = 0;
  bool json = false;
};

// Adds MODEL and the common flags to a subcommand.
void add_common(CLI::App& app, Common& common);

// "64M", "1.5G", "262144", "256k" (powers of 1024) to bytes; 0 for an empty text.
[[nodiscard]] Result<uint64_t> parse_size(const std::string& text);
// "1,2,3" to ids.
[[nodiscard]] Result<std::vector<session::Token>> parse_tokens(const std::string& text);
[[nodiscard]] Result<native::LoadOptions> load_options(const Common& common);
// A text file, or standard input for "-".
[[nodiscard]] Result<std::string> read_text(const std::string& path);

// Prints "sluice: <sentence> [CODE]" and returns the exit status.
int fail(const Status& status);
// Flushes standard output, at the end of a subcommand that would return `status`. Output that was
// lost (a full disk) is an error: says so and returns a status that is not 0.
[[nodiscard]] int finish_output(int status = 0);

// Thousands in the units people read: "1.2 GB".
[[nodiscard]] std::string human_bytes(uint64_t bytes);

// Subcommands: each registers itself and leaves its exit status in *status when it ran.
void add_run(CLI::App& app, int* status);
void add_tokenize(CLI::App& app, int* status);
void add_logits(CLI::App& app, int* status);
void add_dump(CLI::App& app, int* status);
void add_bench(CLI::App& app, int* status);
void add_info(CLI::App& app, int* status);
void add_perplexity(CLI::App& app, int* status);
void add_cache(CLI::App& app, int* status);

}  // namespace sluice::cli

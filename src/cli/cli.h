// What the subcommands of `sluice` share: options that every one takes, the reading of numbers,
// sizes and token lists, and the one way to fail (a sentence on stderr, a non-zero exit). Whatever
// reaches the terminal comes without control characters: names, texts and errors quote files of
// strangers.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "native/model_file.h"

namespace sluice::cli {

struct Common {
  std::string model;
  std::string memory_budget;  // "64M"
  std::string kernels;
  std::string cache_dir;
  std::string kv_type;                 // "q8_0"
  std::string kv_policy;               // "window", "heavy-hitter"
  int kv_sinks = -1, kv_capacity = 0;  // -1, 0: not given
  std::vector<std::string> lora;       // "FILE" or "FILE=0.5"
  int threads = 0;
  int ctx = 0;
  double skip_layers_ratio = 0, early_exit = 1;
  std::string head_clusters;  // "8"
  bool json = false;
};

// Adds MODEL and the common flags to a subcommand.
void add_common(CLI::App& app, Common& common);

// Adds --lora.
void add_lora(CLI::App& app, Common& common);

inline constexpr int64_t kMaxThreads = 64;
// A check for options: a whole number in [least, most]; the error names both.
[[nodiscard]] CLI::Validator whole_number(int64_t least, int64_t most);
// "64M", "1.5G", "262144", "256k" (powers of 1024) to bytes.
[[nodiscard]] Result<uint64_t> parse_size(const std::string& text);
// "FILE" or "FILE=SCALE".
[[nodiscard]] Result<native::AdapterChoice> parse_lora(const std::string& text);
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
// One value on standard output, in valid UTF-8; indent -1: on one line.
void print_json(const nlohmann::json& value, int indent = -1);

// Thousands in the units people read: "1.2 GB".
[[nodiscard]] std::string human_bytes(uint64_t bytes);

// Subcommands: each registers itself and leaves its exit status in *status when it ran.
void add_run(CLI::App& app, int* status);
void add_tokenize(CLI::App& app, int* status);
void add_logits(CLI::App& app, int* status);
void add_embed(CLI::App& app, int* status);
void add_dump(CLI::App& app, int* status);
void add_bench(CLI::App& app, int* status);
void add_info(CLI::App& app, int* status);
void add_perplexity(CLI::App& app, int* status);
void add_cache(CLI::App& app, int* status);
void add_check(CLI::App& app, int* status);
void add_serve(CLI::App& app, int* status);
void add_convert(CLI::App& app, int* status);
void add_chat(CLI::App& app, int* status);

}  // namespace sluice::cli

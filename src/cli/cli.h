// Shared by all subcommands of `sluice`: common options, parsing of numbers, sizes and token lists,
// and error output (one sentence on stderr, a non-zero exit). Names, texts and errors may quote
// untrusted files, so control characters are removed before anything is printed.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "grammar/grammar.h"
#include "native/human.h"
#include "native/model_file.h"

namespace sluice::cli {

// What servers may ask for, and what a file may lack.
struct HostOptions {
  std::vector<std::string> headers;  // "Name: value"
  std::string token, hf_endpoint;
  std::string tokenizer;  // for a QSF file without one
};

struct Common {
  std::string model;
  HostOptions hosts;
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

// The groups of commands in `sluice --help`, in order.
inline constexpr const char* kUse = "Use";
inline constexpr const char* kInspect = "Inspect";
inline constexpr const char* kMeasure = "Measure";
inline constexpr const char* kConvert = "Convert";
inline constexpr const char* kCache = "Cache";
// Adds a subcommand. `example`: a command line for its help.
CLI::App* add_command(CLI::App& app, const char* group, const char* name, const char* what,
                      const char* example);
// Adds --quiet. `help`: what it omits.
void add_quiet(CLI::App& app, bool& quiet, const char* help = "show no progress");

// Adds MODEL and the options of every command that loads a model.
void add_common(CLI::App& app, Common& common);

// Adds --cache-dir. `dir` becomes the directory of the model cache; empty: none.
void add_cache_dir(CLI::App& app, std::string& dir);

// Adds --header, --token and --hf-endpoint.
void add_hosts(CLI::App& app, HostOptions& hosts);
// Adds --tokenizer.
void add_tokenizer(CLI::App& app, HostOptions& hosts);
// How the sources of a model are opened. Errors: kInvalidArgument.
[[nodiscard]] Result<io::OpenOptions> source_options(const std::string& cache_dir,
                                                     const HostOptions& hosts,
                                                     const std::string& model);

// Adds --lora.
void add_lora(CLI::App& app, Common& common);

// A validator that accepts whole numbers in [least, most]; its error names both limits.
[[nodiscard]] CLI::Validator whole_number(int64_t least, int64_t most);
// A validator that accepts sizes in [least, most] as parse_size() reads them.
[[nodiscard]] CLI::Validator byte_size(uint64_t least, uint64_t most);
// The same for numbers. Limits near those of float are not named.
[[nodiscard]] CLI::Validator number(double least, double most);
// A validator that accepts these words; its error lists them.
[[nodiscard]] CLI::Validator one_of(const std::vector<std::string>& words);
// Parses "FILE" or "FILE=SCALE".
[[nodiscard]] Result<native::AdapterChoice> parse_lora(const std::string& text);
// Parses "1,2,3" into token ids.
[[nodiscard]] Result<std::vector<session::Token>> parse_tokens(const std::string& text);
[[nodiscard]] Result<native::LoadOptions> load_options(const Common& common);
// Reads a text file, or standard input for "-".
[[nodiscard]] Result<std::string> read_text(const std::string& path);
// The constraint of --grammar or --json-schema: `given` is the text itself or a file with it. A
// grammar has "::=", and a schema begins with "{". Checked, so that a mistake is reported before a
// model is loaded. Errors: read_text's; those of grammar::compile with the option and the file.
[[nodiscard]] Result<std::string> read_constraint(grammar::Kind kind, const std::string& given);

// Prints "sluice: <sentence>": something degrades without failing.
void print_warning(const std::string& text);
// Prints "sluice: <sentence> [CODE]" and returns the exit status.
int fail(const Status& status);
// Flushes standard output at the end of a subcommand and returns the exit status. If output was
// lost (a full disk), prints an error and returns a non-zero status even if `status` is 0.
[[nodiscard]] int finish_output(int status = 0);
// Prints one JSON value as valid UTF-8. indent -1: on one line.
void print_json(const nlohmann::json& value, int indent = -1);

// Bytes in readable units, powers of 1000: "1.20 GB".
[[nodiscard]] inline std::string human_bytes(uint64_t bytes) {
  return decimal_bytes(bytes);
}

// Subcommands. Each adds itself to `app` and, if it runs, stores its exit status in *status.
void add_run(CLI::App& app, int* status);
void add_tokenize(CLI::App& app, int* status);
void add_logits(CLI::App& app, int* status);
void add_embed(CLI::App& app, int* status);
void add_layout(CLI::App& app, int* status);
void add_encode(CLI::App& app, int* status);
void add_dump(CLI::App& app, int* status);
void add_bench(CLI::App& app, int* status);
void add_info(CLI::App& app, int* status);
void add_perplexity(CLI::App& app, int* status);
void add_compare(CLI::App& app, int* status);
void add_cache(CLI::App& app, int* status);
void add_check(CLI::App& app, int* status);
void add_serve(CLI::App& app, int* status);
void add_convert(CLI::App& app, int* status);
void add_chat(CLI::App& app, int* status);

}  // namespace sluice::cli

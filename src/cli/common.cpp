// Options and helpers shared by the subcommands.
#include <charconv>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/cli.h"
#include "gguf/printable.h"
#include "platform/utf8_path.h"

namespace sluice::cli {
namespace {

constexpr const char* kApproximate = "Approximate (experimental)";
constexpr uint64_t kMaxBytes = 1ull << 53;

// "" for a size, else what is wrong with it.
std::string size_problem(const std::string& text) {
  const Result<uint64_t> size = parse_size(text);
  return size.ok() ? std::string() : size.status().message();
}

}  // namespace

void add_common(CLI::App& app, Common& common) {
  app.add_option("MODEL,-m,--model", common.model,
                 "GGUF file, Hugging Face directory, or http(s) URL of either")
      ->required();
  app.add_option("--memory-budget", common.memory_budget,
                 "bytes that the engine may hold, such as 64M or 1.5G (default: all it wants)")
      ->check(CLI::Validator(size_problem, ""));
  app.add_option("-t,--threads", common.threads, "compute threads (default: chosen)")
      ->check(whole_number(0, kMaxThreads));
  app.add_option("-c,--ctx-size,--ctx", common.ctx,
                 "context length in tokens (default: the model's, at most 4096)")
      ->check(whole_number(0, model::kMaxContext));
  app.add_option("--kernels", common.kernels, "force an instruction set by name");
  app.add_option("--kv-type", common.kv_type,
                 "keys and values as f16 (default), q8_0, q4_0 or q2; q8_0,q4_0 for each apart; "
                 "auto: the best that takes a quarter of the budget");
  app.add_option(
      "--kv-policy", common.kv_policy,
      "a cache that is full: full (an error, default); window, which evicts all but "
      "the first and the last positions and goes on without end; or heavy-hitter, which also "
      "keeps those that have been attended to most");
  app.add_option("--kv-sinks", common.kv_sinks,
                 "first positions that window and heavy-hitter keep (default: 4)")
      ->check(whole_number(0, model::kMaxContext));
  app.add_option("--kv-capacity", common.kv_capacity,
                 "positions that window and heavy-hitter have memory for (default: the context)")
      ->check(whole_number(1, model::kMaxContext));
  app.add_option(
         "--skip-layers-ratio", common.skip_layers_ratio,
         "share of the skippable layers to skip, the least important first, 0 (default) to 1; "
         "needs a file made by sluice convert --calibrate")
      ->check(CLI::Range(0.0, 1.0))
      ->group(kApproximate);
  app.add_option(
         "--early-exit", common.early_exit,
         "confidence at which a token skips its remaining layers, 0 to 1 (default 1: never); "
         "needs a file made by sluice convert --calibrate")
      ->check(CLI::Range(0.0, 1.0))
      ->group(kApproximate);
  app.add_option("--head-clusters", common.head_clusters,
                 "clusters of the output head to compute: a number, exact (as many as find the "
                 "largest logit) or off (default, unless layers are skipped); needs a file made by "
                 "sluice convert --cluster-head")
      ->group(kApproximate);
  app.add_option("--cache-dir", common.cache_dir, "keep what URLs deliver in this directory");
  app.add_flag("--json", common.json, "print JSON");
}

void add_lora(CLI::App& app, Common& common) {
  app.add_option(
         "--lora", common.lora,
         "FILE[=SCALE]: a LoRA adapter, GGUF or a PEFT directory; may be given several times")
      ->allow_extra_args(false);
}

CLI::Validator whole_number(int64_t least, int64_t most) {
  const auto problem = [least, most](const std::string& text) -> std::string {
    int64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [rest, bad] = std::from_chars(text.data(), end, value);
    if (bad == std::errc() && rest == end && value >= least && value <= most) return {};
    return "\"" + text.substr(0, 32) + "\" is not a whole number from " + std::to_string(least) +
           " to " + std::to_string(most);
  };
  return {problem, ""};
}

Result<uint64_t> parse_size(const std::string& text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, bad] = std::from_chars(text.data(), end, number);
  std::string unit(rest, end);
  double factor = 1;
  if (!unit.empty() && std::string("kKmMgG").find(unit[0]) != std::string::npos) {
    const char letter = static_cast<char>(unit[0] | 0x20);
    factor = letter == 'k' ? 0x1p10 : letter == 'm' ? 0x1p20 : 0x1p30;
    unit.erase(0, 1);
  }
  const bool known = unit.empty() || unit == "B" || unit == "iB";
  const bool a_number = bad == std::errc() && std::isfinite(number) && !std::signbit(number);
  if (bad != std::errc::result_out_of_range && (!a_number || !known)) {
    return error(Code::kInvalidArgument, "\"%.32s\" is not a size such as 64M or 1.5G",
                 text.c_str());
  }
  if (!a_number || number * factor > static_cast<double>(kMaxBytes)) {
    return error(Code::kInvalidArgument,
                 "the size \"%.32s\" is beyond what is possible, 0 to %lluG", text.c_str(),
                 static_cast<unsigned long long>(kMaxBytes >> 30));
  }
  return static_cast<uint64_t>(std::llround(number * factor));
}

// What follows the last "=" is a scale, unless it is none and the whole is a file's name.
Result<native::AdapterChoice> parse_lora(const std::string& text) {
  const size_t at = text.rfind('=');
  if (at == std::string::npos) return native::AdapterChoice{text, 1};
  float scale = 0;
  const char* end = text.data() + text.size();
  const auto [rest, bad] = std::from_chars(text.data() + at + 1, end, scale);
  if (rest != end || bad == std::errc::invalid_argument) return native::AdapterChoice{text, 1};
  if (bad != std::errc() || !std::isfinite(scale)) {
    return error(Code::kInvalidArgument, "the adapter's scale \"%.32s\" is not possible",
                 text.c_str() + at + 1);
  }
  return native::AdapterChoice{text.substr(0, at), scale};
}

Result<std::vector<session::Token>> parse_tokens(const std::string& text) {
  std::vector<session::Token> tokens;
  if (text.empty()) return error(Code::kPromptEmpty, "the list of tokens is empty");
  const char* at = text.data();
  const char* end = at + text.size();
  for (;; ++at) {
    session::Token token = 0;
    const auto [next, problem] = std::from_chars(at, end, token);
    const bool ends = next == end || *next == ',';
    if (ends && problem == std::errc::result_out_of_range) {
      return error(Code::kInvalidArgument, "the token %.*s is not in any vocabulary",
                   static_cast<int>(std::min<ptrdiff_t>(next - at, 32)), at);
    }
    if (!ends || problem != std::errc()) {
      return error(Code::kInvalidArgument, "\"%.64s\" is not a list of token ids such as 1,2,3",
                   text.c_str());
    }
    tokens.push_back(token);
    if (next == end) return tokens;
    at = next;
  }
}

Result<native::LoadOptions> load_options(const Common& common) {
  native::LoadOptions options;
  if (!common.memory_budget.empty()) {  // not given
    Result<uint64_t> budget = parse_size(common.memory_budget);
    if (!budget.ok()) return budget.status();
    if (*budget == 0) {
      return error(Code::kInvalidArgument, "a memory budget of 0 bytes holds no model");
    }
    options.engine.memory_budget = *budget;
  }
  if (!common.kv_type.empty()) {
    Result<kv::KvTypes> types = kv::parse_kv_types(common.kv_type);
    if (!types.ok()) return types.status();
    options.engine.kv = *types;
  }
  Result<kv::KvPolicy> policy =
      kv::parse_kv_policy(common.kv_policy, common.kv_sinks, common.kv_capacity);
  if (!policy.ok()) return policy.status();
  options.engine.kv_policy = *policy;
  options.engine.skip_layers_ratio = common.skip_layers_ratio;
  options.engine.exits.confidence = common.early_exit;
  const Result<model::HeadPolicy> head = model::parse_head_policy(common.head_clusters);
  if (!head.ok()) return head.status();
  options.engine.head = *head;
  options.engine.n_threads = common.threads;
  options.engine.n_ctx = common.ctx;
  options.engine.kernels = common.kernels.c_str();
  for (const std::string& text : common.lora) {
    Result<native::AdapterChoice> choice = parse_lora(text);
    if (!choice.ok()) return choice.status();
    options.adapters.push_back(std::move(*choice));
  }
  options.source.cache_dir = common.cache_dir;
  options.source.on_warning = [](const std::string& text) {
    std::fprintf(stderr, "sluice: %s\n", gguf::printable(text, text.size()).c_str());
  };
  return options;
}

Result<std::string> read_text(const std::string& path) {
  std::ifstream file;
  if (path != "-") file.open(platform::to_path(path), std::ios::binary);
  std::istream& from = path == "-" ? std::cin : file;
  std::string text;
  char part[1 << 14];
  while (from.read(part, sizeof part) || from.gcount() > 0) {
    text.append(part, static_cast<size_t>(from.gcount()));
  }
  if (!from.eof()) {  // not there, or a directory
    return error(Code::kNotFound, "the file \"%.256s\" cannot be read", path.c_str());
  }
  return text;
}

int fail(const Status& status) {
  const std::string& message = status.message();
  std::fprintf(stderr, "sluice: %s [%s]\n", gguf::printable(message, message.size()).c_str(),
               code_name(status.code()));
  return status.code() == Code::kAborted ? 130 : 1;
}

int finish_output(int status) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  const int lost = fail(error(Code::kIo, "standard output could not be written"));
  return status != 0 ? status : lost;
}

// JSON escapes what is below a space; DEL and the controls from U+0080 reach terminals too.
void print_json(const nlohmann::json& value, int indent) {
  const std::string text = value.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool c1 = byte == 0xc2 && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (byte != 0x7f && !c1) {
      out += text[i];
      continue;
    }
    char escaped[8];
    std::snprintf(escaped, sizeof escaped, "\\u%04x",
                  static_cast<unsigned char>(c1 ? text[++i] : text[i]));
    out += escaped;
  }
  std::printf("%s\n", out.c_str());
}

std::string human_bytes(uint64_t bytes) {
  char text[32];
  const double n = static_cast<double>(bytes);
  if (bytes >= 1ull << 30) {
    std::snprintf(text, sizeof text, "%.2f GB", n / (1ull << 30));
  } else if (bytes >= 1ull << 20) {
    std::snprintf(text, sizeof text, "%.1f MB", n / (1ull << 20));
  } else {
    std::snprintf(text, sizeof text, "%.0f kB", n / 1024);
  }
  return text;
}

}  // namespace sluice::cli

// Options and helpers that all subcommands share.
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

// "" for a valid size, else the error message.
std::string size_problem(const std::string& text) {
  const Result<uint64_t> size = parse_size(text);
  return size.ok() ? std::string() : size.status().message();
}

}  // namespace

void add_common(CLI::App& app, Common& common) {
  app.add_option("MODEL,-m,--model", common.model,
                 "GGUF or QSF file, Hugging Face directory, or http(s) URL of one")
      ->required();
  app.add_option("--memory-budget", common.memory_budget,
                 "maximum bytes that the engine may hold, such as 64M or 1.5G (default: as many as "
                 "the model needs)")
      ->check(CLI::Validator(size_problem, ""));
  app.add_option("-t,--threads", common.threads, "compute threads, at most 64; 0: chosen (default)")
      ->check(whole_number(0, kMaxThreads));
  app.add_option("-c,--ctx-size,--ctx", common.ctx,
                 "context length in tokens (default: the model's, at most 4096)")
      ->check(whole_number(0, model::kMaxContext));
  app.add_option(
      "--kernels", common.kernels,
      "instruction set of the kernels, such as avx2 or scalar (default: the best of this CPU)");
  app.add_option("--kv-type", common.kv_type,
                 "KV cache type: f16 (default), q8_0, q4_0 or q2; K,V such as q8_0,q4_0 sets keys "
                 "and values separately; auto: the best that fits in a quarter of the budget");
  app.add_option(
      "--kv-policy", common.kv_policy,
      "when the KV cache is full: full (default) is an error; window keeps the first and the last "
      "positions and continues without limit; heavy-hitter also keeps the most attended positions");
  app.add_option("--kv-sinks", common.kv_sinks,
                 "first positions that window and heavy-hitter keep (default: 4)")
      ->check(whole_number(0, model::kMaxContext));
  app.add_option(
         "--kv-capacity", common.kv_capacity,
         "positions that window and heavy-hitter hold in the KV cache (default: the context)")
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
                 "clusters to compute in the clustered output head: a number, exact (as many as it "
                 "takes to find the largest logit) or off (default, unless layers are skipped); "
                 "needs a file made by sluice convert --cluster-head")
      ->group(kApproximate);
  app.add_option("--cache-dir", common.cache_dir,
                 "cache downloads in this directory (default: none)");
  app.add_flag("--json", common.json, "print JSON instead of text (default: off)");
}

void add_lora(CLI::App& app, Common& common) {
  app.add_option(
         "--lora", common.lora,
         "FILE[=SCALE]: a LoRA adapter, GGUF or PEFT directory; may be repeated (default scale: 1)")
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
    return error(Code::kInvalidArgument, "the size \"%.32s\" is out of range: use 0 to %lluG",
                 text.c_str(), static_cast<unsigned long long>(kMaxBytes >> 30));
  }
  return static_cast<uint64_t>(std::llround(number * factor));
}

// The part after the last "=" is the scale. If it is not a number, all of the text is the file
// name.
Result<native::AdapterChoice> parse_lora(const std::string& text) {
  const size_t at = text.rfind('=');
  if (at == std::string::npos) return native::AdapterChoice{text, 1};
  float scale = 0;
  const char* end = text.data() + text.size();
  const auto [rest, bad] = std::from_chars(text.data() + at + 1, end, scale);
  if (rest != end || bad == std::errc::invalid_argument) return native::AdapterChoice{text, 1};
  if (bad != std::errc() || !std::isfinite(scale)) {
    return error(Code::kInvalidArgument, "the adapter's scale \"%.32s\" is out of range",
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
      return error(Code::kInvalidArgument, "the token id %.*s is out of range",
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
  if (!common.memory_budget.empty()) {  // "" means not given
    Result<uint64_t> budget = parse_size(common.memory_budget);
    if (!budget.ok()) return budget.status();
    if (*budget == 0) {
      return error(Code::kInvalidArgument, "a memory budget of 0 bytes is too small for any model");
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
  if (!from.eof()) {  // the file is missing or is a directory
    return error(Code::kNotFound, "cannot read the file \"%.256s\"", path.c_str());
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
  const int lost = fail(error(Code::kIo, "cannot write to standard output"));
  return status != 0 ? status : lost;
}

// JSON escapes controls below U+0020. DEL and U+0080..U+009F are escaped here, since terminals act
// on them too.
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

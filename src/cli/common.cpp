// Options and helpers that all subcommands share.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/options.h"
#include "gguf/printable.h"
#include "io/credentials_native.h"
#include "io/default_cache_native.h"
#include "platform/console.h"
#include "platform/file.h"
#include "platform/utf8_path.h"
#include "session/media.h"
#include "session/option_texts.h"

namespace sluice::cli {
namespace {

using options::find;
using options::Option;
using options::Type;

constexpr const char* kApproximate = "Approximate (experimental)";

// As parse_size() reads it: 67108864 is "64M".
std::string size_text(uint64_t bytes) {
  constexpr const char* kUnits[] = {"", "K", "M", "G", "T"};
  size_t unit = 0;
  for (; unit < 4 && bytes > 0 && bytes % 1024 == 0; ++unit) bytes /= 1024;
  return std::to_string(bytes) + kUnits[unit];
}

}  // namespace

std::string help_of(const Option& row) {
  std::string value = row.otherwise;  // "0: chosen"
  if (value.empty()) return row.help;
  if (const size_t colon = value.find(": "); colon != std::string::npos) {
    value.replace(colon, 2, ", ");
  }
  return std::string(row.help) + " (default: " + value + ")";
}

CLI::Option* limit(CLI::Option* option, const Option& row) {
  switch (row.type) {
    case Type::kBytes:
      return option->check(byte_size(0, kMaxByteSize));
    case Type::kWhole:
      return option->check(
          whole_number(static_cast<int64_t>(row.least), static_cast<int64_t>(row.most)));
    case Type::kNumber:
      return option->check(number(row.least, row.most));
    default:
      return option;
  }
}

CLI::App* add_command(CLI::App& app, const char* group, const char* name, const char* what,
                      const char* example) {
  CLI::App* const sub = app.add_subcommand(name, what);
  sub->group(group);
  sub->footer(std::string("Example: ") + example);
  return sub;
}

void add_quiet(CLI::App& app, bool& quiet, const char* help) {
  app.add_flag("--quiet", quiet, std::string(help) + " (default: off)");
}

void add_common(CLI::App& app, Common& common) {
  app.add_option("MODEL,-m,--model", common.model,
                 "GGUF or QSF file, Hugging Face directory, http(s) URL of one, or hf:OWNER/REPO")
      ->required();
  add_known(app, find("memory_budget"), common.memory_budget);
  add_known(app, find("threads"), common.threads);
  add_known(app, find("n_ctx"), common.ctx);
  add_known(app, find("kernels"), common.kernels);
  add_known(app, find("kv_type"), common.kv_type);
  add_known(app, find("kv_policy"), common.kv_policy);
  add_known(app, find("kv_sinks"), common.kv_sinks);
  add_known(app, find("kv_capacity"), common.kv_capacity);
  add_known(app, find("skip_layers_ratio"), common.skip_layers_ratio)->group(kApproximate);
  add_known(app, find("early_exit"), common.early_exit)->group(kApproximate);
  add_known(app, find("head_clusters"), common.head_clusters)->group(kApproximate);
  add_cache_dir(app, common.cache_dir);
  add_hosts(app, common.hosts);
  add_tokenizer(app, common.hosts);
  app.add_flag("--json", common.json, "print JSON instead of text (default: off)");
}

void add_cache_dir(CLI::App& app, std::string& dir) {
  dir = io::cache_directory("");
  const auto resolve = [](std::string& given) -> std::string {
    given = io::cache_directory(given);
    return {};
  };
  add_known(app, find("cache_directory"), dir)->transform(CLI::Validator(resolve, ""));
}

void add_hosts(CLI::App& app, HostOptions& hosts) {
  add_known(app, find("headers"), hosts.headers)->allow_extra_args(false);
  add_known(app, find("token"), hosts.token);
  add_known(app, find("hf_endpoint"), hosts.hf_endpoint);
}

void add_tokenizer(CLI::App& app, HostOptions& hosts) {
  app.add_option("--tokenizer", hosts.tokenizer,
                 "tokenizer.json, or a model with the same tokenizer, for a QSF file that has none "
                 "(default: none)");
}

Result<io::OpenOptions> source_options(const std::string& cache_dir, const HostOptions& hosts,
                                       const std::string& model) {
  Result<io::Credentials> credentials =
      io::make_credentials(hosts.headers, hosts.token, hosts.hf_endpoint);
  if (!credentials.ok()) return credentials.status();
  io::OpenOptions options;
  options.cache_dir = cache_dir;
  options.credentials = std::move(*credentials);
  options.credentials.model = model;
  options.tokenizer = hosts.tokenizer;
  options.on_warning = print_warning;
  return options;
}

void add_lora(CLI::App& app, Common& common) {
  add_known(app, find("adapters"), common.lora)->allow_extra_args(false);
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

CLI::Validator byte_size(uint64_t least, uint64_t most) {
  const auto problem = [least, most](const std::string& text) -> std::string {
    const Result<uint64_t> size = parse_size(text);
    if (!size.ok()) return size.status().message();
    if (*size >= least && *size <= most) return {};
    return "\"" + text.substr(0, 32) + "\" is not a size from " + size_text(least) + " to " +
           size_text(most);
  };
  return {problem, ""};
}

CLI::Validator number(double least, double most) {
  const auto problem = [least, most](const std::string& text) -> std::string {
    double value = 0;
    const char* end = text.data() + text.size();
    const auto [rest, bad] = std::from_chars(text.data(), end, value);
    if (bad == std::errc() && rest == end && value >= least && value <= most) return {};
    constexpr double kUnnamed = 1e30;
    char range[64] = "";
    if (most < kUnnamed) {
      std::snprintf(range, sizeof range, " from %g to %g", least, most);
    } else if (least > -kUnnamed) {
      std::snprintf(range, sizeof range, " of at least %g", least);
    }
    return "\"" + text.substr(0, 32) + "\" is not a number" + range;
  };
  return {problem, ""};
}

CLI::Validator one_of(const std::vector<std::string>& words) {
  const auto problem = [words](const std::string& text) -> std::string {
    if (std::find(words.begin(), words.end(), text) != words.end()) return {};
    std::string all;
    for (const std::string& word : words) {
      all += (all.empty() ? "" : word == words.back() ? " or " : ", ") + word;
    }
    return "\"" + text.substr(0, 32) + "\" is not " + all;
  };
  return {problem, ""};
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
    const bool too_large =
        problem == std::errc::result_out_of_range || token >= session::kMediaToken;
    if (ends && too_large) {
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
  SLUICE_RETURN_IF_ERROR(session::apply({.kv_type = common.kv_type,
                                         .kv_policy = common.kv_policy,
                                         .head_clusters = common.head_clusters,
                                         .kv_sinks = common.kv_sinks,
                                         .kv_capacity = common.kv_capacity},
                                        &options.engine));
  options.engine.approximate.skip_layers_ratio = common.skip_layers_ratio;
  options.engine.approximate.exits.confidence = common.early_exit;
  options.engine.n_threads = common.threads;
  options.engine.n_ctx = common.ctx;
  options.engine.kernels = common.kernels.c_str();
  for (const std::string& text : common.lora) {
    Result<native::AdapterChoice> choice = parse_lora(text);
    if (!choice.ok()) return choice.status();
    options.adapters.push_back(std::move(*choice));
  }
  Result<io::OpenOptions> source = source_options(common.cache_dir, common.hosts, common.model);
  if (!source.ok()) return source.status();
  options.source = std::move(*source);
  return options;
}

Result<std::string> read_text(const std::string& path) {
  std::ifstream file;
  if (path != "-") file.open(platform::to_path(path), std::ios::binary);
  if (path == "-" && platform::is_terminal(platform::Stream::kInput)) {
    print_warning("reading the text from this terminal; Ctrl-D ends it");
  }
  std::istream& from = path == "-" ? std::cin : file;
  std::string text;
  char part[1 << 14];
  while (from.read(part, sizeof part) || from.gcount() > 0) {
    text.append(part, static_cast<size_t>(from.gcount()));
  }
  if (!from.eof()) {
    return error(Code::kNotFound, "cannot read \"%.256s\": %s", path.c_str(),
                 platform::is_directory(path) ? "it is a directory" : "there is no such file");
  }
  return text;
}

Result<std::string> read_constraint(grammar::Kind kind, const std::string& given) {
  const bool schema = kind == grammar::Kind::kJsonSchema;
  const size_t first = given.find_first_not_of(" \t\r\n");
  const bool is_text = schema ? first != std::string::npos && given[first] == '{'
                              : given.find("::=") != std::string::npos;
  Result<std::string> text = is_text ? given : read_text(given);
  if (!text.ok()) return text.status();
  const auto compiled = grammar::compile(kind, *text, nullptr, {});
  if (compiled.ok()) return text;
  const std::string where = (schema ? "--json-schema" : "--grammar") +
                            (is_text ? std::string() : " \"" + given.substr(0, 256) + "\"");
  return error(compiled.status().code(), "%s: %s", where.c_str(),
               compiled.status().message().c_str());
}

void print_warning(const std::string& text) {
  std::fprintf(stderr, "sluice: %s\n", gguf::printable(text, text.size()).c_str());
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

}  // namespace sluice::cli

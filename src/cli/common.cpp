// Options and helpers shared by the subcommands.
#include <charconv>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>

#include "cli/cli.h"

namespace sluice::cli {

void add_common(CLI::App& app, Common& common) {
  app.add_option("MODEL", common.model,
                 "GGUF file, Hugging Face directory, or http(s) URL of either")
      ->required();
  app.add_option("--memory-budget", common.memory_budget,
                 "bytes that the engine may hold, such as 64M or 1.5G (default: all it wants)");
  app.add_option("--threads", common.threads, "compute threads (default: chosen)")
      ->check(CLI::Range(0, 64));
  app.add_option("--ctx", common.ctx,
                 "context length in tokens (default: the model's, at most 4096)")
      ->check(CLI::Range(0, 1 << 24));
  app.add_option("--kernels", common.kernels, "force an instruction set by name");
  app.add_option("--cache-dir", common.cache_dir, "keep what URLs deliver in this directory");
  app.add_flag("--json", common.json, "print JSON");
}

Result<uint64_t> parse_size(const std::string& text) {
  if (text.empty()) return uint64_t{0};
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  uint64_t unit = 1;
  switch (*end) {
    case 'k':
    case 'K':
      unit = 1ull << 10;
      break;
    case 'm':
    case 'M':
      unit = 1ull << 20;
      break;
    case 'g':
    case 'G':
      unit = 1ull << 30;
      break;
    default:
      break;
  }
  if (unit != 1) ++end;
  const std::string rest = end;
  const bool known = rest.empty() || rest == "B" || rest == "iB";
  if (end == text.c_str() || !known || !(number >= 0) || !(number < 1e15)) {
    return error(Code::kInvalidArgument, "\"%.32s\" is not a size such as 64M or 1.5G",
                 text.c_str());
  }
  return static_cast<uint64_t>(std::llround(number * static_cast<double>(unit)));
}

Result<std::vector<session::Token>> parse_tokens(const std::string& text) {
  std::vector<session::Token> tokens;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at != end) {
    session::Token token = 0;
    const auto [next, problem] = std::from_chars(at, end, token);
    if (problem != std::errc() || (next != end && *next != ',')) {
      return error(Code::kInvalidArgument, "\"%.64s\" is not a list of token ids such as 1,2,3",
                   text.c_str());
    }
    tokens.push_back(token);
    at = next == end ? end : next + 1;
  }
  if (tokens.empty()) return error(Code::kPromptEmpty, "the list of tokens is empty");
  return tokens;
}

Result<native::LoadOptions> load_options(const Common& common) {
  native::LoadOptions options;
  Result<uint64_t> budget = parse_size(common.memory_budget);
  if (!budget.ok()) return budget.status();
  if (!common.memory_budget.empty() && *budget == 0) {
    return error(Code::kInvalidArgument, "a memory budget of 0 bytes holds no model");
  }
  options.engine.memory_budget = *budget;
  options.engine.n_threads = common.threads;
  options.engine.n_ctx = common.ctx;
  options.engine.kernels = common.kernels.c_str();
  options.source.cache_dir = common.cache_dir;
  options.source.on_warning = [](const std::string& text) {
    std::fprintf(stderr, "sluice: %s\n", text.c_str());
  };
  return options;
}

Result<std::string> read_text(const std::string& path) {
  std::ifstream file;
  if (path != "-") file.open(path, std::ios::binary);
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
  std::fprintf(stderr, "sluice: %s [%s]\n", status.message().c_str(), code_name(status.code()));
  return status.code() == Code::kAborted ? 130 : 1;
}

int finish_output(int status) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  const int lost = fail(error(Code::kIo, "standard output could not be written"));
  return status != 0 ? status : lost;
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

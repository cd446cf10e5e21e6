// Starts llama.cpp's programs and reads what they print.
#include "measure/llama_cpp.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "jinja/json_text.h"
#include "platform/console.h"
#include "platform/file.h"
#include "platform/process.h"
#include "platform/program.h"
#include "platform/utf8_path.h"

namespace sluice::measure {
namespace {

constexpr std::string_view kUnknownOption = "error: invalid argument: ";
constexpr std::string_view kEndOfText = " [end of text]";

std::string last_line(std::string_view text) {
  while (!text.empty() && static_cast<unsigned char>(text.back()) <= ' ') text.remove_suffix(1);
  const size_t start = text.rfind('\n');
  return std::string(start == std::string_view::npos ? text : text.substr(start + 1));
}

double number(std::string_view object, std::string_view key) {
  const auto value = json_member(object, key);
  return value ? std::strtod(std::string(*value).c_str(), nullptr) : 0;
}

}  // namespace

Result<std::unique_ptr<LlamaCpp>> LlamaCpp::find(const std::string& directory,
                                                 const std::string& model, int32_t threads) {
  std::unique_ptr<LlamaCpp> out(new LlamaCpp);
  out->perplexity_ = platform::find_program("llama-perplexity", directory);
  if (out->perplexity_.empty()) {
    return error(Code::kNotFound,
                 "there is no llama-perplexity %s%.256s: install llama.cpp, or give the directory "
                 "of its programs with --llama-cpp",
                 directory.empty() ? "on the PATH" : "in ", directory.c_str());
  }
  out->completion_ = platform::find_program("llama-completion", directory);
  if (out->completion_.empty()) out->completion_ = platform::find_program("llama-cli", directory);
  out->bench_ = platform::find_program("llama-bench", directory);
  char magic[4] = {};
  std::ifstream file(platform::to_path(model), std::ios::binary);
  if (!file.read(magic, sizeof magic) || std::string_view(magic, 4) != "GGUF") {
    return error(Code::kInvalidArgument,
                 "llama.cpp can only be compared on a local GGUF file, which \"%.256s\" is not",
                 model.c_str());
  }
  out->model_ = model;
  out->threads_ = std::to_string(threads);
  const std::string base =
      platform::temporary_directory() + "/sluice-compare-" + std::to_string(platform::process_id());
  out->text_file_ = base + ".txt";
  out->logits_file_ = base + ".logits";
  return out;
}

LlamaCpp::~LlamaCpp() {
  if (text_file_.empty()) return;
  platform::remove_file(text_file_);
  platform::remove_file(logits_file_);
}

Result<std::string> LlamaCpp::run(const std::string& path, const char* name,
                                  const std::vector<std::string>& more) const {
  if (path.empty()) return error(Code::kNotFound, "there is no %s", name);
  std::vector<std::string> arguments = {"-m", model_, "-t", threads_, "-ngl", "0"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  platform::ProcessResult result;
  if (!platform::run_program(path, arguments, &result)) {
    return error(Code::kIo, "cannot start \"%.256s\"", path.c_str());
  }
  if (result.status == 0) return std::move(result.output);
  constexpr int kSignal = 128;
  if (result.status > kSignal) {
    return error(Code::kIo, "%s ended with signal %d", name, result.status - kSignal);
  }
  const std::string said = result.errors + result.output;
  if (const size_t at = said.find(kUnknownOption); at != std::string::npos) {
    const std::string option = said.substr(at + kUnknownOption.size());
    return error(Code::kUnsupportedVersion,
                 "this llama.cpp is too old or too new: its %s does not know %.32s", name,
                 option.substr(0, option.find_first_of(" \r\n")).c_str());
  }
  return error(Code::kIo, "%s failed with status %d: %.256s", name, result.status,
               last_line(result.errors.empty() ? result.output : result.errors).c_str());
}

Result<std::string> LlamaCpp::greedy(const std::string& prompt, int32_t n) {
  // It ends its output with a line break. Its log is written by another thread, so that it may
  // exit, with status 0, before the last tokens are out.
  constexpr int kTries = 4;
  std::string text;
  for (int i = 0; i < kTries && !text.ends_with('\n'); ++i) {
    Result<std::string> said =
        run(completion_, "llama-completion",
            {"-p", prompt, "-n", std::to_string(n), "--temp", "0", "-no-cnv", "--no-display-prompt",
             "--no-escape", "--no-warmup", "-c", "512"});
    if (!said.ok()) return said;
    if (said->size() > text.size()) text = std::move(*said);
  }
  std::string_view out = trim_end(text);
  if (out.ends_with(kEndOfText)) out = trim_end(out.substr(0, out.size() - kEndOfText.size()));
  return std::string(out);
}

Result<Chunks> LlamaCpp::begin(const std::string& text, int32_t n_ctx, int32_t n_chunks) {
  std::ofstream file(platform::to_path(text_file_), std::ios::binary);
  file << text;
  file.close();
  if (!file) return error(Code::kIo, "cannot write \"%.256s\"", text_file_.c_str());
  const std::string length = std::to_string(n_ctx);
  const Result<std::string> said =
      run(perplexity_, "llama-perplexity",
          {"-f", text_file_, "-c", length, "-b", length, "--chunks", std::to_string(n_chunks),
           "--no-escape", "--no-warmup", "--save-all-logits", logits_file_});
  if (!said.ok()) return said.status();
  Result<SavedLogits> saved = SavedLogits::open(logits_file_);
  if (!saved.ok()) return saved.status();
  saved_ = std::move(*saved);
  Chunks chunks;
  chunks.n_ctx = saved_->n_ctx();
  chunks.n_chunks = saved_->n_chunks();
  chunks.n_vocab = saved_->n_vocab();
  chunks.tokens.assign(saved_->tokens().begin(), saved_->tokens().end());
  return chunks;
}

Status LlamaCpp::next_row(std::vector<float>* log_probs) {
  return saved_->next_row(log_probs);
}

Result<Rates> LlamaCpp::rates() {
  const Result<std::string> said =
      run(bench_, "llama-bench",
          {"-p", std::to_string(kRatePrompt), "-n", std::to_string(kRateGenerated), "-r",
           std::to_string(kRateRepeats), "-o", "json"});
  if (!said.ok()) return said.status();
  Rates out;
  if (is_json(*said)) {
    for (const std::string_view item : json_items(*said)) {
      const double rate = number(item, "avg_ts");
      (number(item, "n_gen") > 0 ? out.decode : out.prefill) = rate;
    }
  }
  if (!(out.prefill > 0) || !(out.decode > 0)) {
    return error(Code::kUnsupportedVersion,
                 "llama-bench printed no rates: its format is unsupported");
  }
  return out;
}

}  // namespace sluice::measure

// `sluice compare`: is a model run as llama.cpp runs it, or as another model is? src/measure does
// the work. The exit status is 0 if they agree, 1 if not, and 2 if they could not be compared.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/atomic_file.h"
#include "cli/cli.h"
#include "cli/dump.h"
#include "gguf/printable.h"
#include "measure/comparison.h"
#include "measure/layer_comparison.h"
#include "measure/llama_cpp.h"
#include "platform/file.h"
#include "platform/utf8_path.h"

namespace sluice::cli {
namespace {

constexpr int kFailed = 2;

struct CompareOptions {
  Common common;
  std::string other, llama_cpp, file, tokens, distance = "largest";
  bool layers = false;
  measure::ComparisonOptions comparison;
  measure::LayerOptions layer;
};

std::string clipped(const std::string& text) {
  return gguf::printable(text, 48);
}

// --- layers -----------------------------------------------------------------------------------

bool is_dump(const std::string& path) {
  return platform::is_directory(path) &&
         std::filesystem::exists(platform::to_path(path) / "index.txt");
}

// A directory of checkpoint tensors: the given one, or one written for the time of the comparison.
class LayerDump {
 public:
  LayerDump() = default;
  LayerDump(const LayerDump&) = delete;
  LayerDump& operator=(const LayerDump&) = delete;
  ~LayerDump() {
    std::error_code ignored;
    if (!made_.empty()) std::filesystem::remove_all(made_, ignored);
  }
  Status open(const CompareOptions& options, const std::string& source, const char* name) {
    path_ = platform::to_path(source);
    if (is_dump(source)) return {};
    made_ = platform::to_path(platform::temporary_directory()) /
            ("sluice-compare-" + std::to_string(platform::process_id()) + "-" + name);
    path_ = made_;
    DumpOptions dump;
    dump.common = options.common;
    dump.common.model = source;
    dump.tokens = options.tokens;
    dump.out = platform::to_utf8(made_);
    dump.layer = "all";
    return write_dump(dump).status();
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_, made_;
};

// The first tokens of the sample text, in the model's vocabulary.
Result<std::string> sample_tokens(const std::string& source) {
  constexpr size_t kTokens = 16;
  const Result<native::ModelHeader> header = native::read_header(source, {});
  if (!header.ok()) return header.status();
  const auto tokenizer = tokenizer::Tokenizer::create(header->header);
  if (!tokenizer.ok()) return tokenizer.status();
  std::vector<session::Token> ids = (*tokenizer)->encode(measure::sample_text(), {true, false});
  ids.resize(std::min(ids.size(), kTokens));
  std::string text;
  for (const session::Token id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
  return text;
}

void print_layers(const measure::LayerComparison& found, bool as_json) {
  if (as_json) {
    nlohmann::json rows = nlohmann::json::array();
    for (const measure::LayerRow& row : found.rows) {
      const measure::Difference& d = row.difference;
      nlohmann::json line = {{"name", row.name}, {"agrees", row.agrees}};
      if (row.problem.empty()) {
        line.update(
            {{"nmse", d.nmse}, {"mse", d.mse}, {"cosine", d.cosine}, {"largest", d.largest}});
      } else {
        line["problem"] = row.problem;
      }
      rows.push_back(line);
    }
    print_json(
        {{"layers", rows}, {"divergence", found.divergence}, {"agrees", found.divergence.empty()}},
        2);
    return;
  }
  std::printf("%-28s %10s %10s %12s %10s\n", "checkpoint", "NMSE", "MSE", "cosine", "largest");
  for (const measure::LayerRow& row : found.rows) {
    const measure::Difference& d = row.difference;
    if (!row.problem.empty()) {
      std::printf("%-28s %s\n", row.name.c_str(), gguf::printable(row.problem, 256).c_str());
    } else {
      std::printf("%-28s %10.3e %10.3e %12.9f %10.3e  %s\n", row.name.c_str(), d.nmse, d.mse,
                  d.cosine, d.largest, row.agrees ? "ok" : "DIVERGES");
    }
  }
  if (found.divergence.empty()) {
    std::printf("all %zu checkpoints agree\n", found.rows.size());
  } else {
    std::printf("first divergence: %s\n",
                gguf::printable(found.divergence, found.divergence.size()).c_str());
  }
}

Result<bool> layers_agree(CompareOptions& options) {
  if (options.distance == "nmse") options.layer.distance = measure::Distance::kNmse;
  if (options.distance == "mse") options.layer.distance = measure::Distance::kMse;
  if (options.tokens.empty()) {
    const bool two_models = !is_dump(options.common.model) && !is_dump(options.other);
    if (two_models) {
      Result<std::string> tokens = sample_tokens(options.common.model);
      if (!tokens.ok()) return tokens.status();
      options.tokens = std::move(*tokens);
    } else if (!is_dump(options.common.model) || !is_dump(options.other)) {
      return error(Code::kInvalidArgument,
                   "give the tokens that \"%.256s\" was made with as --tokens",
                   is_dump(options.other) ? options.other.c_str() : options.common.model.c_str());
    }
  }
  LayerDump ours, reference;
  SLUICE_RETURN_IF_ERROR(ours.open(options, options.common.model, "ours"));
  SLUICE_RETURN_IF_ERROR(reference.open(options, options.other, "reference"));
  const Result<measure::LayerComparison> found =
      measure::compare_layers(ours.path(), reference.path(), options.layer);
  if (!found.ok()) return found.status();
  print_layers(*found, options.common.json);
  return found->divergence.empty();
}

// --- output -----------------------------------------------------------------------------------

nlohmann::json comparison_json(const measure::Comparison& found, const CompareOptions& options,
                               const measure::Baseline& baseline, const session::Engine& engine) {
  nlohmann::json greedy = nlohmann::json::array();
  for (const measure::GreedyComparison& g : found.greedy) {
    greedy.push_back({{"prompt", g.prompt},
                      {"ours", g.ours},
                      {"other", g.baseline},
                      {"tokens", g.tokens},
                      {"equalTokens", g.equal},
                      {"gap", g.gap},
                      {"agrees", g.agrees}});
  }
  const measure::LogitsComparison& l = found.logits;
  const measure::Limits& limits = options.comparison.limits;
  const auto rates = [](const measure::Rates& r) {
    return nlohmann::json{{"prefillTokensPerSecond", r.prefill},
                          {"decodeTokensPerSecond", r.decode}};
  };
  nlohmann::json speed = {{"ours", rates(found.ours)}};
  if (found.baseline.decode > 0) speed["other"] = rates(found.baseline);
  return {{"model", options.common.model},
          {"other", baseline.name()},
          {"kernels", engine.table().name},
          {"threads", engine.plan().threads.n_threads},
          {"greedy", greedy},
          {"logits",
           {{"positions", l.positions},
            {"meanKl", l.mean_kl},
            {"maxKl", l.max_kl},
            {"sameTop", l.same_top},
            {"rounding", l.rounding}}},
          {"perplexity", {{"ours", l.our_perplexity}, {"other", l.baseline_perplexity}}},
          {"speed", speed},
          {"limits", {{"kl", limits.kl}, {"perplexity", limits.perplexity}, {"gap", limits.gap}}},
          {"notes", found.notes},
          {"disagrees", found.disagrees},
          {"agrees", found.disagrees.empty()}};
}

void print_row(const char* label, double ours, double baseline, const char* form) {
  char text[2][32];
  std::snprintf(text[0], sizeof text[0], form, ours);
  std::snprintf(text[1], sizeof text[1], form, baseline);
  std::printf("%-22s %12s %12s\n", label, text[0], baseline > 0 ? text[1] : "-");
}

void print_comparison(const measure::Comparison& found, const CompareOptions& options,
                      const measure::Baseline& baseline) {
  for (const measure::GreedyComparison& g : found.greedy) {
    std::printf("greedy tokens          %2d of %2d equal  %s", g.equal, g.tokens,
                clipped(g.prompt).c_str());
    if (g.equal < g.tokens) {
      std::printf("  (then our two likeliest are %.3f apart)", static_cast<double>(g.gap));
    }
    std::printf("\n");
  }
  const measure::LogitsComparison& l = found.logits;
  std::printf("likeliest token equal  %.1f %% of %d positions\n", 100 * l.same_top, l.positions);
  std::printf("KL divergence          %.6f nats, at most %.6f\n", l.mean_kl, l.max_kl);
  if (l.rounding > 0) {
    std::printf("                       (%s rounds log-probabilities to 16 bits: by up to %.6f)\n",
                baseline.name().c_str(), l.rounding);
  }
  const std::string other = baseline.name() == "llama.cpp" ? "llama.cpp" : "other";
  std::printf("\n%-22s %12s %12s\n", "", "ours", other.c_str());
  print_row("perplexity", l.our_perplexity, l.baseline_perplexity, "%.4f");
  print_row("prefill, tokens/s", found.ours.prefill, found.baseline.prefill, "%.1f");
  print_row("decode, tokens/s", found.ours.decode, found.baseline.decode, "%.1f");
  std::printf("\n");
  for (const std::string& note : found.notes) {
    std::printf("not compared: %s\n", gguf::printable(note, note.size()).c_str());
  }
  const measure::Limits& limits = options.comparison.limits;
  if (found.disagrees.empty()) {
    std::printf("they agree (limits: KL divergence %.3g, perplexity %.3g %%, gap %.3g)\n",
                limits.kl, limits.perplexity, limits.gap);
  }
  for (const std::string& why : found.disagrees) {
    std::printf("they disagree: %s\n", gguf::printable(why, why.size()).c_str());
  }
}

// --- models -----------------------------------------------------------------------------------

Result<std::unique_ptr<measure::ModelRun>> open_model(const CompareOptions& options,
                                                      const std::string& source) {
  Result<native::LoadOptions> load = load_options(options.common);
  if (!load.ok()) return load.status();
  return measure::ModelRun::open(source, std::move(*load), options.comparison.n_ctx);
}

Result<bool> models_agree(CompareOptions& options) {
  measure::ComparisonOptions& comparison = options.comparison;
  if (options.common.ctx > 0) comparison.n_ctx = options.common.ctx;
  if (comparison.n_ctx < 8) {
    return error(Code::kInvalidArgument, "a context of %d tokens is too short: use at least 8",
                 comparison.n_ctx);
  }
  if (comparison.prompts.empty()) comparison.prompts = measure::sample_prompts();
  comparison.text = measure::sample_text();
  if (!options.file.empty()) {
    Result<std::string> text = read_text(options.file);
    if (!text.ok()) return text.status();
    comparison.text = std::move(*text);
  }
  std::unique_ptr<measure::Baseline> baseline;
  const int threads = options.common.threads > 0 ? options.common.threads : default_thread_count();
  if (options.other.empty()) {
    auto found = measure::LlamaCpp::find(options.llama_cpp, options.common.model, threads);
    if (!found.ok()) return found.status();
    baseline = std::move(*found);
  } else {
    auto run = open_model(options, options.other);
    if (!run.ok()) return run.status();
    baseline = std::make_unique<measure::ModelBaseline>(options.other, std::move(*run));
  }
  auto model = open_model(options, options.common.model);
  if (!model.ok()) return model.status();
  const Result<measure::Comparison> found = measure::compare(**model, *baseline, comparison);
  if (!found.ok()) return found.status();
  if (options.common.json) {
    print_json(comparison_json(*found, options, *baseline, (*model)->engine()), 2);
  } else {
    print_comparison(*found, options, *baseline);
  }
  return found->disagrees.empty();
}

int run_comparison(CompareOptions& options) {
  const bool dumps = is_dump(options.common.model) && is_dump(options.other);
  const bool layers = options.layers || dumps || is_dump(options.other);
  if (options.layers && options.other.empty()) {
    fail(error(Code::kInvalidArgument, "--layers compares with another model or dump: name it"));
    return kFailed;
  }
  const Result<bool> agrees = layers ? layers_agree(options) : models_agree(options);
  if (!agrees.ok()) {
    fail(agrees.status());
    return kFailed;
  }
  return *agrees ? 0 : 1;
}

}  // namespace

void add_compare(CLI::App& app, int* status) {
  auto options = std::make_shared<CompareOptions>();
  CLI::App* sub =
      add_command(app, kMeasure, "compare", "Compare with llama.cpp, or with another model",
                  "sluice compare model.gguf --llama-cpp ~/llama.cpp/build/bin");
  add_common(*sub, options->common);
  add_lora(*sub, options->common);
  sub->add_option("OTHER", options->other,
                  "another model, or a directory written by sluice dump (default: llama.cpp)");
  sub->add_option("--llama-cpp", options->llama_cpp,
                  "directory of llama.cpp's programs (default: those on the PATH)");
  measure::ComparisonOptions& comparison = options->comparison;
  sub->add_option("-p,--prompt", comparison.prompts,
                  "prompt for greedy tokens; may be repeated (default: three short ones)")
      ->allow_extra_args(false);
  sub->add_option("-n,--predict", comparison.n_tokens, "greedy tokens per prompt (default: 20)")
      ->check(whole_number(1, 256));
  sub->add_option("-f,--file", options->file,
                  "file with the text for logits and perplexity (default: a short text)");
  sub->add_option("--chunks", comparison.n_chunks,
                  "chunks of --ctx tokens (default here: 128) of the text to use (default: 4)")
      ->check(whole_number(1, 1 << 20));
  sub->add_option("--max-kl", comparison.limits.kl,
                  "mean KL divergence in nats above which they disagree (default: 0.01)")
      ->check(CLI::NonNegativeNumber);
  sub->add_option(
         "--max-perplexity-change", comparison.limits.perplexity,
         "difference of the perplexities in percent above which they disagree (default: 1)")
      ->check(CLI::NonNegativeNumber);
  sub->add_option("--max-gap", comparison.limits.gap,
                  "how far apart our two likeliest logits may be where greedy tokens differ "
                  "(default: 0.25)")
      ->check(CLI::NonNegativeNumber);
  sub->add_flag("--layers", options->layers,
                "compare the tensors of every layer with OTHER's, and name the first that differs "
                "(default: only if OTHER was written by sluice dump)");
  sub->add_option("--tokens", options->tokens,
                  "with --layers: token ids to run (default: the start of a short text)");
  sub->add_option("--tolerance", options->layer.tolerance,
                  "with --layers: one tolerance for all tensors (default: 1e-4; RMSNorm and RoPE "
                  "1e-5, softmax 1e-6, logits 1e-3)")
      ->check(CLI::PositiveNumber);
  sub->add_option("--measure", options->distance,
                  "with --layers: what the tolerance limits: largest (default), nmse or mse")
      ->check(CLI::IsMember({"largest", "nmse", "mse"}));
  sub->add_flag("--allow-missing", options->layer.allow_missing,
                "with --layers: ignore tensors that only OTHER has (default: off)");
  sub->callback([options, status] {
    const EndsAtSignals watch;
    *status = run_comparison(*options);
  });
}

}  // namespace sluice::cli

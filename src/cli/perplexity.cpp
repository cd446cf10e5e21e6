// `sluice perplexity`: exp of the mean negative log likelihood of a text's tokens
// (measure/log_likelihood.h).
#include "cli/perplexity.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/progress.h"

namespace sluice::cli {
namespace {

struct PerplexityOptions {
  Common common;
  std::string file;
  measure::LogLikelihood scoring;
  bool per_token = false, quiet = false;
};

nlohmann::json per_token(const tokenizer::Tokenizer& vocabulary,
                         const std::vector<measure::Score>& scores) {
  nlohmann::json list = nlohmann::json::array();
  for (const measure::Score& s : scores) {
    list.push_back(
        {{"token", s.token}, {"nll", s.nll}, {"text", vocabulary.token_bytes(s.token, true)}});
  }
  return list;
}

void print(const measure::Scored& scored, const PerplexityOptions& options) {
  const session::Engine& engine = scored.model->engine();
  const tokenizer::Tokenizer& vocabulary = engine.tokenizer();
  const std::vector<measure::Score>& scores = scored.scores;
  const double perplexity = scored.perplexity();
  if (options.common.json) {
    nlohmann::json line = {{"perplexity", perplexity},
                           {"standardError", perplexity * scored.error},
                           {"nll", scored.mean},
                           {"tokens", scores.size()},
                           {"contextLength", engine.plan().context.n_ctx},
                           {"stride", scored.stride},
                           {"kernels", engine.table().name}};
    if (options.per_token) line["perToken"] = per_token(vocabulary, scores);
    print_json(line);
    return;
  }
  if (options.per_token) {  // one line per token: id, nats, text
    for (const measure::Score& s : scores) {
      std::printf("%d\t%.6f\t", s.token, s.nll);
      print_json(vocabulary.token_bytes(s.token, true));
    }
  }
  std::printf("perplexity %.4f +- %.4f (%.5f nats a token, %zu tokens, context %d, stride %zu)\n",
              perplexity, perplexity * scored.error, scored.mean, scores.size(),
              engine.plan().context.n_ctx, scored.stride);
}

Status perplexity(PerplexityOptions& options) {
  Result<std::string> text = read_text(options.file);
  if (!text.ok()) return text.status();
  options.scoring.text = std::move(*text);
  const Result<measure::Scored> scored =
      score(options.common, std::move(options.scoring), options.quiet);
  if (!scored.ok()) return scored.status();
  print(*scored, options);
  return {};
}

}  // namespace

Result<measure::Scored> score(const Common& common, measure::LogLikelihood scoring, bool quiet) {
  Result<native::LoadOptions> load = load_options(common);
  if (!load.ok()) return load.status();
  scoring.model = common.model;
  scoring.load = std::move(*load);
  Progress progress("scoring", Unit::kTokens, quiet);
  scoring.on_progress = [&](uint64_t done, uint64_t total) { progress.update(done, total); };
  return measure::score_text(std::move(scoring));
}

void add_perplexity(CLI::App& app, int* status) {
  auto options = std::make_shared<PerplexityOptions>();
  CLI::App* sub =
      add_command(app, kMeasure, "perplexity", "Measure how well a model predicts a text",
                  "sluice perplexity model.gguf -f text.txt");
  add_common(*sub, options->common);
  add_lora(*sub, options->common);
  sub->add_option("-f,--file", options->file, "file with the text; - reads standard input")
      ->required();
  sub->add_option("--stride", options->scoring.stride,
                  "tokens between the starts of windows (default: half the context)")
      ->check(whole_number(1, model::kMaxContext));
  sub->add_flag("--no-parse-special", options->scoring.no_parse_special,
                "treat special tokens in the text as plain text (default: off)");
  sub->add_flag("--per-token", options->per_token,
                "print each token's negative log likelihood: id, nats, text (default: off)");
  add_quiet(*sub, options->quiet);
  sub->callback([options, status] {
    if (const Status s = perplexity(*options); !s.ok()) *status = fail(s);
  });
}

}  // namespace sluice::cli

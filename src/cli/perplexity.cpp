// `sluice perplexity`: how well a model predicts a text, exp of the mean negative log likelihood of
// its tokens. The text is read in windows of the context length that begin `stride` tokens apart;
// each token is scored once, in the first window that holds it, so with a stride below the context
// every token but those of the first window is predicted from at least context - stride others.
// Where the vocabulary has a BOS that it adds, every window opens with it, as every text would.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/cli.h"

namespace sluice::cli {
namespace {

constexpr int32_t kDefaultWindow = 512;  // tokens; the customary length for this measure
constexpr int32_t kRows = 32;            // rows of logits that a pass keeps

struct PerplexityOptions {
  Common common;
  std::string file;
  int stride = 0;
  bool no_special = false;
  bool per_token = false;
};

struct Score {
  session::Token token = 0;
  double nll = 0;  // nats
};

// -log softmax(logits)[token]
double negative_log_likelihood(std::span<const float> logits, session::Token token) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float value : logits) sum += std::exp(static_cast<double>(value) - top);
  return top + std::log(sum) - static_cast<double>(logits[static_cast<size_t>(token)]);
}

// Scores window[first..], each from the tokens before it; appends to `scores`.
Status score_window(native::Model& model, session::Session& session,
                    std::span<const session::Token> window, size_t first,
                    std::vector<Score>* scores) {
  session.clear();
  const session::MemoryPlan& plan = model.engine().plan();
  const size_t step = static_cast<size_t>(std::min(plan.logits_rows, plan.n_batch));
  if (first > 1) {  // the part whose own predictions are not asked for
    SLUICE_RETURN_IF_ERROR(session.begin(window.first(first - 1)));
    SLUICE_RETURN_IF_ERROR(model.run(session));
  }
  for (size_t at = first - 1; at + 1 < window.size(); at += step) {
    const size_t n = std::min(step, window.size() - 1 - at);
    SLUICE_RETURN_IF_ERROR(session.begin(window.subspan(at, n), session::Wanted::kAllLogits));
    SLUICE_RETURN_IF_ERROR(model.run(session));
    for (size_t row = 0; row < n; ++row) {
      const session::Token token = window[at + row + 1];
      scores->push_back(
          {token, negative_log_likelihood(session.logits(static_cast<int32_t>(row)), token)});
    }
  }
  return {};
}

// Scores all of `tokens` (without BOS). A first token with nothing before it is not scored.
Status score_text(native::Model& model, session::Session& session,
                  std::span<const session::Token> tokens, size_t stride,
                  std::vector<Score>* scores) {
  const tokenizer::Tokenizer& vocabulary = model.engine().tokenizer();
  const size_t opening = vocabulary.adds_bos() && vocabulary.bos() >= 0 ? 1 : 0;
  const size_t room = static_cast<size_t>(model.engine().plan().n_ctx) - opening;
  std::vector<session::Token> window;
  size_t done = 0;  // tokens before this one have been scored
  for (size_t start = 0; done < tokens.size(); start += stride) {
    const size_t end = std::min(tokens.size(), start + room);
    window.assign(opening, vocabulary.bos());
    window.insert(window.end(), tokens.begin() + static_cast<ptrdiff_t>(start),
                  tokens.begin() + static_cast<ptrdiff_t>(end));
    const size_t first = std::max<size_t>(1, opening + done - start);
    SLUICE_RETURN_IF_ERROR(score_window(model, session, window, first, scores));
    done = end;
  }
  return {};
}

struct Summary {
  double mean = 0;   // nats per token
  double error = 0;  // standard error of that mean
};

Summary summarize(const std::vector<Score>& scores) {
  const double n = static_cast<double>(scores.size());
  double sum = 0, squares = 0;
  for (const Score& s : scores) sum += s.nll;
  const double mean = sum / n;
  for (const Score& s : scores) squares += (s.nll - mean) * (s.nll - mean);
  return {mean, scores.size() > 1 ? std::sqrt(squares / (n - 1) / n) : 0};
}

nlohmann::json per_token(const tokenizer::Tokenizer& vocabulary, const std::vector<Score>& scores) {
  nlohmann::json list = nlohmann::json::array();
  for (const Score& s : scores) {
    list.push_back(
        {{"token", s.token}, {"nll", s.nll}, {"text", vocabulary.token_bytes(s.token, true)}});
  }
  return list;
}

void print(native::Model& model, const PerplexityOptions& options, size_t stride,
           const std::vector<Score>& scores) {
  const tokenizer::Tokenizer& vocabulary = model.engine().tokenizer();
  const Summary sum = summarize(scores);
  const double perplexity = std::exp(sum.mean);
  if (options.common.json) {
    nlohmann::json line = {{"perplexity", perplexity},
                           {"standardError", perplexity * sum.error},
                           {"nll", sum.mean},
                           {"tokens", scores.size()},
                           {"contextLength", model.engine().plan().n_ctx},
                           {"stride", stride},
                           {"kernels", model.engine().table().name}};
    if (options.per_token) line["perToken"] = per_token(vocabulary, scores);
    print_json(line);
    return;
  }
  if (options.per_token) {  // one line a token: id, nats, text
    for (const Score& s : scores) {
      std::printf("%d\t%.6f\t", s.token, s.nll);
      print_json(vocabulary.token_bytes(s.token, true));
    }
  }
  std::printf("perplexity %.4f +- %.4f (%.5f nats a token, %zu tokens, context %d, stride %zu)\n",
              perplexity, perplexity * sum.error, sum.mean, scores.size(),
              model.engine().plan().n_ctx, stride);
}

// The context asked for, or the model's own up to the customary length. With a cache that forgets
// it is the cache's, and the whole text one window.
Result<int32_t> window_length(const Common& common, const native::LoadOptions& load) {
  if (load.engine.n_ctx > 0) return load.engine.n_ctx;
  if (load.engine.kv_policy.size > 0) return load.engine.kv_policy.size;
  Result<native::ModelHeader> header = native::read_header(common.model, load.source);
  if (!header.ok()) return header.status();
  Result<session::Inspection> found = session::inspect(header->header, load.engine);
  if (!found.ok()) return found.status();
  return std::min(kDefaultWindow, found->plan.n_ctx);
}

Status perplexity(const PerplexityOptions& options) {
  Result<std::string> text = read_text(options.file);
  if (!text.ok()) return text.status();
  Result<native::LoadOptions> load = load_options(options.common);
  if (!load.ok()) return load.status();
  Result<int32_t> n_ctx = window_length(options.common, *load);
  if (!n_ctx.ok()) return n_ctx.status();
  if (*n_ctx < 4) {
    return error(Code::kInvalidArgument, "a context of %d tokens is too short: 4 is the least",
                 *n_ctx);
  }
  if (options.stride >= *n_ctx) {
    return error(Code::kInvalidArgument, "the stride %d must be below the context of %d tokens",
                 options.stride, *n_ctx);
  }
  load->engine.n_ctx = *n_ctx;
  load->engine.logits_rows = load->engine.memory_budget > 0 ? 1 : kRows;
  Result<std::unique_ptr<native::Model>> model = native::Model::open(options.common.model, *load);
  if (!model.ok()) return model.status();
  if (!(*model)->engine().program().hp.causal) {
    return error(Code::kInvalidArgument,
                 "this model reads texts whole: each position knows what follows it");
  }
  auto session = session::Session::create((*model)->engine());
  if (!session.ok()) return session.status();
  const std::vector<session::Token> tokens =
      (*model)->engine().tokenizer().encode(*text, {false, !options.no_special});
  const size_t stride = static_cast<size_t>(options.stride > 0 ? options.stride : *n_ctx / 2);
  std::vector<Score> scores;
  SLUICE_RETURN_IF_ERROR(score_text(**model, **session, tokens, stride, &scores));
  if (scores.empty()) {
    return error(Code::kPromptEmpty, "the text \"%.256s\" has no token to predict",
                 options.file.c_str());
  }
  if (!std::isfinite(summarize(scores).mean)) {
    return error(Code::kInternal, "the model's logits are not finite: is the file damaged?");
  }
  print(**model, options, stride, scores);
  return {};
}

}  // namespace

void add_perplexity(CLI::App& app, int* status) {
  auto options = std::make_shared<PerplexityOptions>();
  CLI::App* sub = app.add_subcommand("perplexity",
                                     "Measure how well a model predicts a text, in "
                                     "windows of --ctx tokens (default: at most 512)");
  add_common(*sub, options->common);
  add_lora(*sub, options->common);
  sub->add_option("--file", options->file, "the text; - reads standard input")->required();
  sub->add_option("--stride", options->stride,
                  "tokens between the beginnings of windows (default: half the context)")
      ->check(whole_number(1, model::kMaxContext));
  sub->add_flag("--no-special", options->no_special, "treat special tokens in the text as text");
  sub->add_flag("--per-token", options->per_token,
                "print every token's share, in nats: id, nats, text");
  sub->callback([options, status] {
    if (const Status s = perplexity(*options); !s.ok()) *status = fail(s);
  });
}

}  // namespace sluice::cli

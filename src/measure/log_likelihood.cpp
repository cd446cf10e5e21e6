// Splits the text into windows and scores the tokens of each.
#include "measure/log_likelihood.h"

#include <algorithm>
#include <cmath>

#include "measure/kl_divergence.h"

namespace sluice::measure {
namespace {

constexpr int32_t kDefaultWindow = 512;  // tokens; the usual context for perplexity
constexpr int32_t kRowsPerPass = 32;     // rows of logits per forward pass

// -log softmax(logits)[token]
double negative_log_likelihood(std::span<const float> logits, session::Token token) {
  return log_of_sum(logits) - static_cast<double>(logits[static_cast<size_t>(token)]);
}

// Scores window[first..], each token from those before it. Appends to `scores`.
Status score_window(native::Model& model, session::Session& session,
                    std::span<const session::Token> window, size_t first,
                    std::vector<Score>* scores) {
  session.clear();
  const session::MemoryPlan& plan = model.engine().plan();
  const size_t step = static_cast<size_t>(std::min(plan.batch.logits_rows, plan.batch.n_batch));
  if (first > 1) {  // tokens whose own predictions are not needed
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

// Scores all of `tokens`, which have no BOS.
Status score_windows(native::Model& model, session::Session& session,
                     std::span<const session::Token> tokens, size_t stride,
                     const std::function<void(uint64_t, uint64_t)>& on_progress,
                     std::vector<Score>* scores) {
  const tokenizer::Tokenizer& vocabulary = model.engine().tokenizer();
  const size_t opening = vocabulary.adds_bos() && vocabulary.bos() >= 0 ? 1 : 0;
  const size_t room = static_cast<size_t>(model.engine().plan().context.n_ctx) - opening;
  std::vector<session::Token> window;
  size_t done = 0;  // number of tokens scored so far
  if (on_progress) on_progress(0, tokens.size());
  for (size_t start = 0; done < tokens.size(); start += stride) {
    const size_t end = std::min(tokens.size(), start + room);
    window.assign(opening, vocabulary.bos());
    window.insert(window.end(), tokens.begin() + static_cast<ptrdiff_t>(start),
                  tokens.begin() + static_cast<ptrdiff_t>(end));
    const size_t first = std::max<size_t>(1, opening + done - start);
    SLUICE_RETURN_IF_ERROR(score_window(model, session, window, first, scores));
    done = end;
    if (on_progress) on_progress(done, tokens.size());
  }
  return {};
}

void summarize(Scored* scored) {
  const double n = static_cast<double>(scored->scores.size());
  double sum = 0, squares = 0;
  for (const Score& s : scored->scores) sum += s.nll;
  scored->mean = sum / n;
  for (const Score& s : scored->scores) squares += (s.nll - scored->mean) * (s.nll - scored->mean);
  scored->error = n > 1 ? std::sqrt(squares / (n - 1) / n) : 0;
}

// Window length: the given context, else the model's, at most kDefaultWindow. With an evicting KV
// cache it is the cache's capacity.
Result<int32_t> window_length(const std::string& model, const native::LoadOptions& load) {
  if (load.engine.n_ctx > 0) return load.engine.n_ctx;
  if (load.engine.kv_policy.capacity > 0) return load.engine.kv_policy.capacity;
  Result<native::ModelHeader> header = native::read_header(model, load.source);
  if (!header.ok()) return header.status();
  Result<session::Inspection> found = session::inspect(header->header, load.engine);
  if (!found.ok()) return found.status();
  return std::min(kDefaultWindow, found->plan.context.n_ctx);
}

}  // namespace

double Scored::perplexity() const {
  return std::exp(mean);
}

Result<Scored> score_text(LogLikelihood scoring) {
  session::EngineOptions& engine = scoring.load.engine;
  const Result<int32_t> n_ctx = window_length(scoring.model, scoring.load);
  if (!n_ctx.ok()) return n_ctx.status();
  if (*n_ctx < 4) {
    return error(Code::kInvalidArgument, "a context of %d tokens is too short: use at least 4",
                 *n_ctx);
  }
  if (scoring.stride >= *n_ctx) {
    return error(Code::kInvalidArgument, "the stride %d must be below the context of %d tokens",
                 scoring.stride, *n_ctx);
  }
  engine.n_ctx = *n_ctx;
  engine.logits_rows = engine.memory_budget > 0 ? 1 : kRowsPerPass;
  Result<std::unique_ptr<native::Model>> model = native::Model::open(scoring.model, scoring.load);
  if (!model.ok()) return model.status();
  if (!(*model)->engine().program().hp.attention.causal) {
    return error(Code::kInvalidArgument,
                 "cannot score text with this model: its attention is bidirectional, so each "
                 "position sees what follows it");
  }
  auto session = session::Session::create((*model)->engine().context());
  if (!session.ok()) return session.status();
  const std::vector<session::Token> tokens =
      (*model)->engine().tokenizer().encode(scoring.text, {false, !scoring.no_parse_special});
  Scored out;
  out.stride = static_cast<size_t>(scoring.stride > 0 ? scoring.stride : *n_ctx / 2);
  SLUICE_RETURN_IF_ERROR(
      score_windows(**model, **session, tokens, out.stride, scoring.on_progress, &out.scores));
  if (out.scores.empty()) {
    return error(Code::kPromptEmpty, "the text is too short: it has no token to predict");
  }
  summarize(&out);
  if (!std::isfinite(out.mean)) {
    return error(Code::kInternal, "the model's logits are not finite: the file may be damaged");
  }
  out.model = std::move(*model);
  return out;
}

}  // namespace sluice::measure

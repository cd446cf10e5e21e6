// Runs the parts one after another, and collects what exceeds a limit.
#include "measure/comparison.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>

#include "measure/kl_divergence.h"
#include "measure/saved_logits.h"

namespace sluice::measure {
namespace {

[[gnu::format(printf, 1, 2)]] std::string format(const char* text, ...) {
  char out[320];
  va_list values;
  va_start(values, text);
  std::vsnprintf(out, sizeof out, text, values);
  va_end(values);
  return out;
}

Result<GreedyComparison> compare_greedy(ModelRun& model, Baseline& baseline,
                                        const std::string& prompt,
                                        const ComparisonOptions& options) {
  GreedyComparison out;
  out.prompt = prompt;
  Result<std::string> theirs = baseline.greedy(prompt, options.n_tokens);
  if (!theirs.ok()) return theirs.status();
  const Result<std::vector<GreedyToken>> ours = model.greedy(prompt, options.n_tokens);
  if (!ours.ok()) return ours.status();
  const std::span<const GreedyToken> tokens(*ours);
  out.baseline = std::move(*theirs);
  out.ours = model.text_of(tokens);
  out.tokens = static_cast<int32_t>(tokens.size());
  if (trim_end(out.ours) == trim_end(out.baseline)) {
    out.equal = out.tokens;
    return out;
  }
  size_t same = 0;
  while (same < tokens.size() && out.baseline.starts_with(model.text_of(tokens.first(same + 1)))) {
    ++same;
  }
  same = std::min(same, tokens.size() - 1);  // ours may have ended earlier
  out.equal = static_cast<int32_t>(same);
  out.gap = tokens[same].gap;
  out.agrees = out.gap <= options.limits.gap;
  return out;
}

// Where the ids of the text part from the baseline's; -1 if they do not.
int32_t first_difference(const ModelRun& model, const Chunks& chunks, const std::string& text) {
  const std::vector<session::Token> ours = model.vocabulary().encode(text, {true, false});
  for (size_t i = 0; i < chunks.tokens.size(); ++i) {
    if (i >= ours.size() || ours[i] != chunks.tokens[i]) return static_cast<int32_t>(i);
  }
  return -1;
}

Result<LogitsComparison> compare_logits(ModelRun& model, Baseline& baseline,
                                        const ComparisonOptions& options) {
  const Result<Chunks> chunks = baseline.begin(options.text, options.n_ctx, options.n_chunks);
  if (!chunks.ok()) return chunks.status();
  const int64_t n_vocab = model.engine().program().hp.n_vocab;
  if (chunks->n_vocab != n_vocab) {
    return error(Code::kBadShape, "the vocabularies differ: %lld tokens here, %d in %s",
                 static_cast<long long>(n_vocab), chunks->n_vocab, baseline.name().c_str());
  }
  LogitsComparison out;
  out.first_token = first_difference(model, *chunks, options.text);
  model.begin(*chunks);
  std::vector<float> theirs, ours;
  double our_nll = 0, their_nll = 0;
  for (int32_t chunk = 0; chunk < chunks->n_chunks; ++chunk) {
    for (int32_t row = 0; row < chunks->rows_per_chunk(); ++row) {
      SLUICE_RETURN_IF_ERROR(baseline.next_row(&theirs));
      const Result<std::span<const float>> logits = model.next_row();
      if (!logits.ok()) return logits.status();
      ours.assign(logits->begin(), logits->end());
      to_log_probabilities(ours);
      const int64_t at = int64_t{chunk} * chunks->n_ctx + chunks->n_ctx / 2 + row + 1;
      const auto next = static_cast<size_t>(chunks->tokens[static_cast<size_t>(at)]);
      our_nll -= ours[next];
      // A value that was cut off is about 16 below the largest.
      const float largest = *std::max_element(theirs.begin(), theirs.end());
      their_nll -= theirs[next] > SavedLogits::kAbsent ? theirs[next] : largest - 16;
      const double kl = divergence_from(theirs, ours);
      if (!std::isfinite(kl)) {
        return error(Code::kBadWeights, "logits are not finite: the file may be damaged");
      }
      out.mean_kl += kl;
      out.max_kl = std::max(out.max_kl, kl);
      const auto top = std::max_element(ours.begin(), ours.end()) - ours.begin();
      const auto their_top = std::max_element(theirs.begin(), theirs.end());
      if (theirs[static_cast<size_t>(top)] >= *their_top) out.same_top += 1;
      ++out.positions;
    }
  }
  const double n = std::max(1, out.positions);
  out.mean_kl /= n;
  out.same_top /= n;
  out.our_perplexity = std::exp(our_nll / n);
  out.baseline_perplexity = std::exp(their_nll / n);
  out.rounding = baseline.rounding();
  return out;
}

void judge(const ComparisonOptions& options, Comparison* out) {
  for (const GreedyComparison& g : out->greedy) {
    if (g.agrees) continue;
    out->disagrees.push_back(
        format("greedy token %d after \"%.40s\" differs, where our two likeliest tokens are %.3f "
               "apart (limit %.3g)",
               g.equal + 1, g.prompt.c_str(), static_cast<double>(g.gap), options.limits.gap));
  }
  const LogitsComparison& l = out->logits;
  if (l.first_token >= 0) {
    out->disagrees.push_back(format("token %d of the text has another id", l.first_token));
  }
  if (!(l.mean_kl <= options.limits.kl)) {
    out->disagrees.push_back(
        format("the mean KL divergence is %.5f nats (limit %.3g)", l.mean_kl, options.limits.kl));
  }
  const double change = std::fabs(l.our_perplexity / l.baseline_perplexity - 1) * 100;
  if (!(change <= options.limits.perplexity)) {
    out->disagrees.push_back(format("the perplexities differ by %.2f %% (limit %.3g %%)", change,
                                    options.limits.perplexity));
  }
}

}  // namespace

Result<Comparison> compare(ModelRun& model, Baseline& baseline, const ComparisonOptions& options) {
  Comparison out;
  for (const std::string& prompt : options.prompts) {
    Result<GreedyComparison> greedy = compare_greedy(model, baseline, prompt, options);
    if (greedy.ok()) {
      out.greedy.push_back(std::move(*greedy));
      continue;
    }
    if (greedy.status().code() != Code::kNotFound) return greedy.status();
    out.notes.push_back("greedy tokens: " + greedy.status().message());
    break;
  }
  const Result<LogitsComparison> logits = compare_logits(model, baseline, options);
  if (!logits.ok()) return logits.status();
  out.logits = *logits;
  const Result<Rates> theirs = baseline.rates();
  if (theirs.ok()) {
    out.baseline = *theirs;
  } else {
    out.notes.push_back("speed: " + theirs.status().message());
  }
  const Result<Rates> ours = model.rates();
  if (!ours.ok()) return ours.status();
  out.ours = *ours;
  judge(options, &out);
  return out;
}

}  // namespace sluice::measure

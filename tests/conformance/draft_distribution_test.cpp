// Sampling with drafts follows the model's own distribution. 100,000 samples of three tokens with
// temperature, top-k, top-p, min-p and penalties, each with its own seed, are compared with the
// exact probabilities of all outputs, computed from the logits by definition. A draft token is
// accepted exactly when the sampler draws it from the model's logits, so a seed gives the same
// tokens with and without drafts, which is tested too. Pearson's chi-square also finds a bias that
// both would share.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "../sanitized.h"
#include "fixtures_util.h"
#include "generation_util.h"

namespace sluice::test {
namespace {

using session::Token;
using Tokens = std::vector<Token>;

constexpr size_t kDepth = 3;  // tokens of a sample
constexpr int kAnswers = kSanitized ? 700 : 33334;
constexpr int kAnswersTwice = kSanitized ? 100 : 3000;

sample::Params some_params() {
  sample::Params p;
  p.temperature = 1.4f;
  p.top_k = 7;
  p.top_p = 0.92f;
  p.min_p = 0.03f;
  p.repeat_penalty = 1.4f;
  p.frequency_penalty = 0.3f;
  p.presence_penalty = 0.2f;
  p.penalty_last_n = 24;
  return p;
}

struct Chance {
  Token token;
  double p;
};

// The distribution after a text with these parameters, by definition.
std::vector<Chance> chances(const std::vector<float>& logits, const Tokens& text,
                            const sample::Params& params) {
  std::map<Token, int> seen;
  const size_t window = std::min(text.size(), static_cast<size_t>(params.penalty_last_n));
  for (size_t i = text.size() - window; i < text.size(); ++i) ++seen[text[i]];
  std::vector<Chance> out;
  for (size_t i = 0; i < logits.size(); ++i) {
    double logit = static_cast<double>(logits[i]);
    if (const auto it = seen.find(static_cast<Token>(i)); it != seen.end()) {
      const double repeat = static_cast<double>(params.repeat_penalty);
      logit = logit > 0 ? logit / repeat : logit * repeat;
      logit -= it->second * static_cast<double>(params.frequency_penalty);
      logit -= static_cast<double>(params.presence_penalty);
    }
    out.push_back({static_cast<Token>(i), logit});
  }
  std::sort(out.begin(), out.end(), [](const Chance& a, const Chance& b) { return a.p > b.p; });
  out.resize(static_cast<size_t>(params.top_k));
  const auto normalize = [&out] {
    double total = 0;
    for (const Chance& c : out) total += c.p;
    for (Chance& c : out) c.p /= total;
  };
  const double best = out[0].p;
  for (Chance& c : out) c.p = std::exp((c.p - best) / static_cast<double>(params.temperature));
  normalize();
  size_t kept = 0;
  for (double sum = 0; kept < out.size() && sum < static_cast<double>(params.top_p);) {
    sum += out[kept++].p;
  }
  const double least = static_cast<double>(params.min_p) * out[0].p;
  while (out[kept - 1].p < least) --kept;
  out.resize(kept);
  normalize();
  return out;
}

// Every possible output with its probability, and the most probable token after each prefix.
struct Tree {
  std::map<Tokens, double> answers;
  std::map<Tokens, Token> likeliest;
};

void grow(Opened& opened, const Tokens& prompt, const sample::Params& params, const Tokens& said,
          double p, Tree* tree) {
  if (said.size() == kDepth) {
    tree->answers[said] = p;
    return;
  }
  Tokens text = prompt;
  text.insert(text.end(), said.begin(), said.end());
  for (const Chance& c : chances(logits_after(opened, text), text, params)) {
    tree->likeliest.emplace(said, c.token);  // the first is the likeliest
    Tokens next = said;
    next.push_back(c.token);
    grow(opened, prompt, params, next, p * c.p, tree);
  }
}

// Drafts the most probable token, except at some positions.
class FixedDrafts final : public generate::DraftSource {
 public:
  FixedDrafts(const Tree& tree, size_t n_prompt) : tree_(tree), n_prompt_(n_prompt) {}
  [[nodiscard]] size_t propose(std::span<const Token> text, std::span<Token> out) override {
    Tokens said(text.begin() + static_cast<std::ptrdiff_t>(n_prompt_), text.end());
    size_t n = 0;
    while (n < out.size() && said.size() < kDepth) {
      const auto found = tree_.likeliest.find(said);
      out[n] = found != tree_.likeliest.end() && ++calls_ % 5 != 0 ? found->second : 3;
      said.push_back(out[n++]);
    }
    return n;
  }

 private:
  const Tree& tree_;
  size_t n_prompt_;
  int calls_ = 0;
};

// Pearson's statistic as a standard normal deviate (Wilson and Hilferty 1931). Cells with fewer
// than five expected outputs are merged.
double deviate(const std::map<Tokens, double>& expected, const std::map<Tokens, int>& found) {
  double total = 0, statistic = 0, rare_expected = 0, rare_found = 0;
  for (const auto& [answer, n] : found) total += n;
  int cells = 0;
  const auto add = [&](double e, double n) {
    statistic += (n - e) * (n - e) / e;
    ++cells;
  };
  double unexpected = total;
  for (const auto& [answer, p] : expected) {
    const auto it = found.find(answer);
    const double n = it == found.end() ? 0 : it->second, e = p * total;
    unexpected -= n;
    if (e < 5) {
      rare_expected += e;
      rare_found += n;
    } else {
      add(e, n);
    }
  }
  if (unexpected > 0) return 1e9;  // an impossible output occurred
  if (rare_expected > 0) add(rare_expected, rare_found);
  const double df = cells - 1, spread = 2 / (9 * df);
  return (std::cbrt(statistic / df) - (1 - spread)) / std::sqrt(spread);
}

TEST(DraftedSampling, DrawsFromTheModelsOwnDistribution) {
  session::EngineOptions load;
  load.n_ctx = 64;
  load.n_threads = 1;
  load.draft_max = 4;
  Opened opened = open_model(own_folder("arch") + "/llama-gqa.gguf", load);
  ASSERT_NE(opened.session, nullptr);
  const sample::Params params = some_params();
  // The prompt contains likely tokens, so that penalties matter.
  Tokens prompt = {1, 77, 238, 235, 490, 397};
  for (int i = 0; i < 4; ++i) {
    prompt.push_back(chances(logits_after(opened, prompt), prompt, params)[0].token);
  }
  Tree tree, unpenalized;
  grow(opened, prompt, params, {}, 1, &tree);
  sample::Params without = params;
  without.repeat_penalty = 1;
  without.frequency_penalty = without.presence_penalty = 0;
  grow(opened, prompt, without, {}, 1, &unpenalized);

  generate::Options options;
  options.sampling = params;
  options.max_tokens = kDepth;
  options.ignore_eos = true;
  FixedDrafts drafts(tree, prompt.size());
  std::map<Tokens, int> drawn;
  int drafted = 0, accepted = 0;
  for (int i = 0; i < kAnswers; ++i) {
    options.sampling.seed = static_cast<uint64_t>(i);
    options.drafts = {.source = &drafts};
    const Answer found = answer(opened, prompt, options);
    ASSERT_TRUE(found.status.ok()) << found.status.message();
    ++drawn[found.tokens()];
    drafted += found.counts.drafted;
    accepted += found.counts.accepted;
    if (i >= kAnswersTwice) continue;
    options.drafts = {};
    ASSERT_EQ(answer(opened, prompt, options).tokens(), found.tokens()) << "seed " << i;
  }
  EXPECT_GT(accepted, kAnswers / 8);  // draft tokens of both kinds
  EXPECT_GT(drafted - accepted, kAnswers / 8);
  EXPECT_GT(tree.answers.size(), 60u);
  EXPECT_LT(deviate(tree.answers, drawn), 4);
  // Without the penalties the distribution differs.
  EXPECT_GT(deviate(unpenalized.answers, drawn), kSanitized ? 6 : 20);
}

}  // namespace
}  // namespace sluice::test

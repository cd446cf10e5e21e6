// The text is read once whole, which gives the last layer's tokens and every layer's figures, and
// once for each layer with all tokens leaving behind it. A logistic regression for each layer is
// fitted by Newton's method.
#include "cli/exits.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "cli/cli.h"

namespace sluice::cli {
namespace {

constexpr size_t kTokensRead = 2048;
constexpr auto kN = static_cast<size_t>(model::kExitFeatures);
constexpr double kNever = -30;  // log odds behind layers where nobody may leave

using Features = std::array<float, kN>;
using Weights = std::array<double, kN>;

// What a reading of the text brings.
struct Seen {
  std::vector<std::vector<Features>> by_layer;  // [layers][tokens], where asked for
  std::vector<int32_t> best;                    // token with the largest logit, of each position
};

struct Reader {
  native::Model& model;
  session::Session& session;
  std::span<const session::Token> tokens;

  [[nodiscard]] Status read(Seen* out) const {
    const session::MemoryPlan& plan = model.engine().plan();
    const auto step = static_cast<size_t>(std::min(plan.logits_rows, plan.n_batch));
    const auto room = static_cast<size_t>(plan.n_ctx);
    for (size_t start = 0; start < tokens.size(); start += room) {
      const std::span<const session::Token> window =
          tokens.subspan(start, std::min(room, tokens.size() - start));
      session.clear();
      for (size_t at = 0; at < window.size(); at += step) {
        const std::span<const session::Token> batch =
            window.subspan(at, std::min(step, window.size() - at));
        SLUICE_RETURN_IF_ERROR(session.begin(batch, session::Wanted::kAllLogits));
        SLUICE_RETURN_IF_ERROR(model.run(session));
        for (size_t row = 0; row < batch.size(); ++row) {
          const std::span<const float> logits = session.logits(static_cast<int32_t>(row));
          out->best.push_back(static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) -
                                                   logits.begin()));
        }
      }
    }
    return {};
  }
};

bool note(void* context, int32_t layer, std::span<const float> features) {
  Features& at = static_cast<Seen*>(context)->by_layer[static_cast<size_t>(layer)].emplace_back();
  std::copy(features.begin(), features.end(), at.begin());
  return false;
}

bool is_behind(void* context, int32_t layer, std::span<const float>) {
  return *static_cast<int32_t*>(context) == layer;
}

double score(const Weights& w, const Features& x) {
  double sum = 0;
  for (size_t i = 0; i < w.size(); ++i) sum += w[i] * double{x[i]};
  return sum;
}

// Solves a x = b for a positive definite a, in place of b.
void solve(std::array<Weights, kN> a, Weights* b) {
  for (size_t i = 0; i < kN; ++i) {
    for (size_t row = i + 1; row < kN; ++row) {
      const double by = a[row][i] / a[i][i];
      for (size_t k = i; k < kN; ++k) a[row][k] -= by * a[i][k];
      (*b)[row] -= by * (*b)[i];
    }
  }
  for (size_t i = kN; i-- > 0;) {
    for (size_t k = i + 1; k < kN; ++k) (*b)[i] -= a[i][k] * (*b)[k];
    (*b)[i] /= a[i][i];
  }
}

// Weights for the figures as they are, fitted to figures of mean 0 and deviation 1 whose weights
// are held back a little, so that figures that tell nothing, and a text all of whose tokens are
// settled, have an answer too.
Weights fit(const std::vector<Features>& x, const std::vector<uint8_t>& settled) {
  constexpr double kHeldBack = 1;
  constexpr int kSteps = 30;
  const double n = static_cast<double>(x.size());
  Weights mean{}, deviation{}, w{};
  for (const Features& f : x) {
    for (size_t i = 1; i < kN; ++i) mean[i] += double{f[i]} / n;
  }
  for (const Features& f : x) {
    for (size_t i = 1; i < kN; ++i) deviation[i] += std::pow(double{f[i]} - mean[i], 2) / n;
  }
  for (double& d : deviation) d = d > 1e-12 ? std::sqrt(d) : 1;
  for (int step = 0; step < kSteps; ++step) {
    Weights slope{};
    std::array<Weights, kN> curve{};
    for (size_t t = 0; t < x.size(); ++t) {
      Weights z{1};
      double sum = w[0];
      for (size_t i = 1; i < kN; ++i) {
        z[i] = (double{x[t][i]} - mean[i]) / deviation[i];
        sum += w[i] * z[i];
      }
      const double p = 1 / (1 + std::exp(-sum));
      for (size_t i = 0; i < kN; ++i) {
        slope[i] += (settled[t] - p) * z[i];
        for (size_t k = 0; k < kN; ++k) curve[i][k] += p * (1 - p) * z[i] * z[k];
      }
    }
    for (size_t i = 0; i < kN; ++i) {
      slope[i] -= kHeldBack * w[i];
      curve[i][i] += kHeldBack;
    }
    solve(curve, &slope);
    // Newton's step, kept to what the curve tells of.
    double longest = 0;
    for (const double s : slope) longest = std::max(longest, std::abs(s));
    const double by = longest > 2 ? 2 / longest : 1;
    for (size_t i = 0; i < kN; ++i) w[i] += by * slope[i];
  }
  for (size_t i = 1; i < kN; ++i) {
    w[i] /= deviation[i];
    w[0] -= w[i] * mean[i];
  }
  return w;
}

// The share of pairs of a settled token and another that the scores have in order.
double told(const Weights& w, const std::vector<Features>& x, const std::vector<uint8_t>& settled) {
  std::vector<std::pair<double, uint8_t>> all;
  for (size_t t = 0; t < x.size(); ++t) all.emplace_back(score(w, x[t]), settled[t]);
  std::sort(all.begin(), all.end());
  double others = 0, right = 0, yes = 0;
  for (const auto& [unused, is] : all) {
    others += is == 0;
    yes += is;
    right += is != 0 ? others : 0;
  }
  return others > 0 && yes > 0 ? right / (others * yes) : 0.5;
}

}  // namespace

Result<Exits> measure_exits(const Calibration& calibration) {
  Result<std::string> text = read_text(calibration.text_file);
  if (!text.ok()) return text.status();
  Result<native::LoadOptions> load = calibration_options(calibration);
  if (!load.ok()) return load.status();
  Exits out;
  load->engine.exits.measures = true;
  Result<std::unique_ptr<native::Model>> opened = native::Model::open(calibration.model, *load);
  if (opened.status().code() == Code::kInvalidArgument) return out;  // no token may leave
  if (!opened.ok()) return opened.status();
  session::Engine& engine = (*opened)->engine();
  const model::Program& p = engine.program();
  std::vector<session::Token> tokens = engine.tokenizer().encode(*text, {true, false});
  tokens.resize(std::min(tokens.size(), kTokensRead));
  if (tokens.empty()) return error(Code::kPromptEmpty, "the text to calibrate with has no tokens");
  Result<std::unique_ptr<session::Session>> session = session::Session::create(engine);
  if (!session.ok()) return session.status();
  const Reader reader{**opened, **session, tokens};
  out.tokens = tokens.size();
  Seen whole;
  whole.by_layer.resize(p.exits.may.size());
  engine.exit_watch() = {note, &whole};
  SLUICE_RETURN_IF_ERROR(reader.read(&whole));
  int32_t behind = 0;
  engine.exit_watch() = {is_behind, &behind};
  for (size_t layer = 0; layer < p.exits.may.size(); ++layer) {
    Weights w{kNever};
    if (p.exits.may[layer] != 0) {
      Seen early;
      behind = static_cast<int32_t>(layer);
      SLUICE_RETURN_IF_ERROR(reader.read(&early));
      std::vector<uint8_t> settled;
      ExitWorth worth{static_cast<int32_t>(layer)};
      for (size_t t = 0; t < tokens.size(); ++t) {
        settled.push_back(early.best[t] == whole.best[t]);
        worth.settled += settled.back() / static_cast<double>(tokens.size());
      }
      w = fit(whole.by_layer[layer], settled);
      worth.told = told(w, whole.by_layer[layer], settled);
      out.layers.push_back(worth);
    }
    for (const double weight : w) out.weights.push_back(static_cast<float>(weight));
  }
  return out;
}

}  // namespace sluice::cli

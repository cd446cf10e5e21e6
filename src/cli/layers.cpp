// A model is opened for each layer, without it: what runs is the program that a quality below 1
// gives.
#include "cli/layers.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>

#include "cli/cli.h"
#include "model/skipping.h"

namespace sluice::cli {
namespace {

constexpr uint64_t kMostLogits = 32ull << 20;  // bytes that are kept to compare with
constexpr uint64_t kLeastTokens = 16, kMostTokens = 512;

struct Reading {
  std::vector<session::Token> tokens;
  std::vector<float> logits;  // [tokens][vocabulary]
  std::vector<double> cosines;
  std::vector<int32_t> skippable;
};

double cosine(const float* a, const float* b, int32_t n) {
  double aa = 0, bb = 0, ab = 0;
  for (int32_t i = 0; i < n; ++i) {
    aa += static_cast<double>(a[i]) * a[i];
    bb += static_cast<double>(b[i]) * b[i];
    ab += static_cast<double>(a[i]) * b[i];
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 1;
}

// The residual stream as layers leave it, each compared with the one before.
class Stream {
 public:
  explicit Stream(int64_t n_layer) : sums_(static_cast<size_t>(n_layer)), counts_(sums_.size()) {}

  void see(std::string_view name, int32_t ne0, int32_t n_tokens, const float* data,
           int64_t stride) {
    const bool input = name.starts_with("embd.") || name.starts_with("inp_scaled.");
    if (!input && !name.starts_with("l_out-")) return;
    const auto layer = input ? 0 : static_cast<size_t>(std::atoi(name.data() + 6));
    const auto width = static_cast<size_t>(ne0);
    std::vector<float> now;
    for (int32_t t = 0; t < n_tokens; ++t)
      now.insert(now.end(), data + t * stride, data + t * stride + ne0);
    if (!input && layer < sums_.size() && now.size() == before_.size()) {
      for (size_t at = 0; at < now.size(); at += width) {
        sums_[layer] += cosine(&before_[at], &now[at], ne0);
        counts_[layer] += 1;
      }
    }
    before_ = std::move(now);
  }

  [[nodiscard]] std::vector<double> cosines() const {
    std::vector<double> out;
    for (size_t i = 0; i < sums_.size(); ++i) {
      out.push_back(counts_[i] > 0 ? sums_[i] / counts_[i]
                                   : std::numeric_limits<double>::quiet_NaN());
    }
    return out;
  }

 private:
  std::vector<float> before_;
  std::vector<double> sums_, counts_;
};

Result<Reading> read_without(const Calibration& from, native::LoadOptions load,
                             std::span<const int32_t> skip, const std::string& text,
                             std::span<const session::Token> known) {
  load.engine.skip = skip;
  Result<std::unique_ptr<native::Model>> opened = native::Model::open(from.model, load);
  if (!opened.ok()) return opened.status();
  native::Model& model = **opened;
  session::Engine& engine = model.engine();
  Reading out;
  out.tokens.assign(known.begin(), known.end());
  if (known.empty()) {
    out.skippable = model::skippable_layers(engine.program());
    out.tokens = engine.tokenizer().encode(text, {true, false});
    const auto vocabulary = static_cast<uint64_t>(engine.program().hp.n_vocab);
    const uint64_t most = std::clamp(kMostLogits / (4 * vocabulary), kLeastTokens, kMostTokens);
    out.tokens.resize(
        std::min<size_t>({out.tokens.size(), most, static_cast<size_t>(engine.plan().n_ctx)}));
  }
  Result<std::unique_ptr<session::Session>> session = session::Session::create(engine);
  if (!session.ok()) return session.status();
  Stream stream(engine.program().hp.n_layer);
  if (known.empty()) {
    (*session)->observe([&stream](const char* name, int32_t ne0, int32_t, int32_t n,
                                  const float* data,
                                  int64_t stride) { stream.see(name, ne0, n, data, stride); });
  }
  const auto step = static_cast<size_t>(std::min(engine.plan().logits_rows, engine.plan().n_batch));
  for (size_t at = 0; at < out.tokens.size(); at += step) {
    const std::span<const session::Token> batch(out.tokens.data() + at,
                                                std::min(step, out.tokens.size() - at));
    SLUICE_RETURN_IF_ERROR((*session)->begin(batch, session::Wanted::kAllLogits));
    SLUICE_RETURN_IF_ERROR(model.run(**session));
    for (size_t row = 0; row < batch.size(); ++row) {
      const std::span<const float> logits = (*session)->logits(static_cast<int32_t>(row));
      out.logits.insert(out.logits.end(), logits.begin(), logits.end());
    }
  }
  out.cosines = stream.cosines();
  return out;
}

double log_of_sum(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - top);
  return top + std::log(sum);
}

double divergence(const Reading& whole, const Reading& part) {
  const size_t n = whole.tokens.size(), width = whole.logits.size() / n;
  double sum = 0;
  for (size_t t = 0; t < n; ++t) {
    const std::span p = std::span(whole.logits).subspan(t * width, width);
    const std::span q = std::span(part.logits).subspan(t * width, width);
    const double log_p = log_of_sum(p), log_q = log_of_sum(q);
    for (size_t i = 0; i < width; ++i) {
      const double a = static_cast<double>(p[i]) - log_p, b = static_cast<double>(q[i]) - log_q;
      sum += std::exp(a) * (a - b);
    }
  }
  return std::max(0.0, sum / static_cast<double>(n));
}

}  // namespace

Result<std::vector<LayerWorth>> measure_layers(const Calibration& calibration) {
  Result<std::string> text = read_text(calibration.text_file);
  if (!text.ok()) return text.status();
  const Result<native::LoadOptions> load = calibration_options(calibration);
  if (!load.ok()) return load.status();
  const Result<Reading> whole = read_without(calibration, *load, {}, *text, {});
  if (!whole.ok()) return whole.status();
  if (whole->tokens.empty()) {
    return error(Code::kPromptEmpty, "the text to calibrate with has no tokens");
  }
  std::vector<LayerWorth> out;
  for (size_t layer = 0; layer < whole->cosines.size(); ++layer) {
    LayerWorth& worth = out.emplace_back();
    worth.cosine = whole->cosines[layer];
    const int32_t skip[] = {static_cast<int32_t>(layer)};
    if (std::ranges::find(whole->skippable, skip[0]) == whole->skippable.end()) continue;
    const Result<Reading> part = read_without(calibration, *load, skip, *text, whole->tokens);
    if (!part.ok()) return part.status();
    worth.divergence = divergence(*whole, *part);
  }
  return out;
}

std::vector<float> importance_of(const std::vector<LayerWorth>& layers) {
  std::vector<float> out;
  for (const LayerWorth& l : layers) {
    out.push_back(l.divergence < 0 ? FLT_MAX : static_cast<float>(l.divergence));
  }
  return out;
}

}  // namespace sluice::cli

// Each probe is a separate engine over the model's files (measure/trial_model.h).
#include "measure/sensitivity.h"

#include <algorithm>

#include "convert/quantized_source.h"
#include "gguf/head_clusters.h"
#include "measure/calibration_text.h"
#include "measure/kl_divergence.h"
#include "measure/sensitivity_trials.h"
#include "measure/text_chunks.h"
#include "measure/trial_model.h"

namespace sluice::measure {
namespace {

using convert::Probe;
using session::Token;

constexpr uint64_t kMaxLogits = 128ull << 20;  // maximum bytes of reference logits kept
constexpr uint64_t kLogitsAtOnce = 32ull << 20;
constexpr int32_t kTextsAtOnce = 8;
constexpr uint64_t kReadForText = 64ull << 30;  // weight bytes that generating the text may read
constexpr int32_t kShortestText = 32;

// The reference output of the unmodified model: log probabilities, or embeddings.
struct Answers {
  bool logits = false;
  size_t width = 0;
  std::vector<float> rows;  // [positions][width]
};

class Sweep {
 public:
  explicit Sweep(const SensitivityOptions& options) : options_(options) {}

  [[nodiscard]] Result<MeasuredSensitivity> measure() {
    SLUICE_RETURN_IF_ERROR(prepare());
    SLUICE_RETURN_IF_ERROR(read_text());
    SLUICE_RETURN_IF_ERROR(run_whole());
    SLUICE_RETURN_IF_ERROR(try_parts());
    double total = 0, done = 0;
    for (const Probe& p : plan_.probes) total += work_of(p);
    std::vector<std::vector<float>> changes;
    for (const Probe& p : plan_.probes) {
      Result<std::vector<float>> of = changes_of(p);
      if (!of.ok()) return of.status();
      changes.push_back(std::move(*of));
      done += work_of(p);
      if (options_.on_progress) options_.on_progress(kTextShare + (1 - kTextShare) * done / total);
    }
    weigh(changes);
    return MeasuredSensitivity{std::move(plan_.probes), plan_.how, tokens_, positions_,
                               options_.text == nullptr};
  }

 private:
  static constexpr double kTextShare = 0.1;

  struct Window {
    std::vector<Token> tokens;
    std::vector<size_t> compared;            // whose outputs are compared
    std::vector<std::vector<float>> before;  // residual streams before each layer and at the end
    size_t first_answer = 0;                 // index into answers_
  };

  [[nodiscard]] Status prepare() {
    Result<native::ModelHeader> model = native::read_header(options_.model, options_.source);
    if (!model.ok()) return model.status();
    model_ = std::move(*model);
    if (model_.remote && options_.source.cache_dir.empty()) {
      return error(Code::kUnsupportedArchitecture,
                   "measuring a remote model needs --cache-dir; without it each measurement would "
                   "download it");
    }
    std::erase_if(model_.header.tensors,
                  [](const gguf::Tensor& t) { return t.name == gguf::kHeadByCluster; });
    SLUICE_RETURN_IF_ERROR(gguf::index_tensors(&model_.header));
    Result<convert::Source> stored = as_stored(model_, &stored_header_);
    if (!stored.ok()) return stored.status();
    stored_ = std::make_unique<convert::Source>(std::move(*stored));
    Result<model::Program> program = model::build_program(model_.header);
    if (!program.ok()) return program.status();
    program_ = std::move(*program);
    if (program_.decoder > 0) {
      return error(Code::kUnsupportedArchitecture,
                   "cannot measure sensitivities of an encoder-decoder model");
    }
    plan_ =
        plan_probes(model_.header, {options_.importance != nullptr, options_.qsf_types}, program_);
    cuts_ = std::make_unique<TextChunks>(program_);
    answers_.logits = program_.head >= 0;
    width_ = static_cast<size_t>(program_.width[static_cast<size_t>(model::Buf::kX)]);
    const uint64_t budget = options_.memory_budget;
    window_ = window_of(model_.header);
    if (answers_.logits) {
      const auto row = 4 * static_cast<uint64_t>(program_.hp.n_vocab);
      const uint64_t most = std::min(kMaxLogits, budget / 8) / row;
      max_positions_ = std::clamp<uint64_t>(most, 1, plan_.tokens);
      rows_ = std::clamp<uint64_t>(std::min(kLogitsAtOnce, budget / 16) / row, 1,
                                   static_cast<uint64_t>(window_));
    } else {
      max_positions_ = plan_.tokens;
    }
    // Keep the residual streams of all layers if they fit in a quarter of the budget, else only the
    // last.
    const uint64_t stream = 4 * plan_.tokens * width_;
    keeps_ = (cuts_->layer.size() + 1) * stream <= budget / 4;
    held_ = (keeps_ ? cuts_->layer.size() + 1 : 2) * stream +
            (max_positions_ + rows_) * 4 * answer_width() + 64 * convert::kSubstituteRoom +
            (options_.importance != nullptr ? options_.importance->bytes() : 0) + options_.held;
    return {};
  }
  [[nodiscard]] uint64_t answer_width() const {
    return static_cast<uint64_t>(answers_.logits ? program_.hp.n_vocab : program_.hp.n_embd);
  }

  [[nodiscard]] session::EngineOptions engine_options() const {
    session::EngineOptions out;
    out.memory_budget = options_.memory_budget;
    out.base_bytes = held_;
    out.n_threads = options_.threads;
    return out;
  }

  [[nodiscard]] Result<TrialModel> open(const Probe* probe) const {
    session::EngineOptions engine = engine_options();
    engine.n_ctx = window_;
    engine.n_batch = window_;
    engine.logits_rows = answers_.logits ? static_cast<int32_t>(rows_) : 1;
    return open_trial(model_, *stored_, probe, options_.importance, engine);
  }

  [[nodiscard]] Status read_text() {
    CalibrationText wanted{plan_.tokens, window_, kTextsAtOnce};
    Texts texts;
    if (options_.text != nullptr) {
      Result<TrialModel> opened = open(nullptr);
      if (!opened.ok()) return opened.status();
      texts = cut_text(opened->model->engine().tokenizer(), *options_.text, plan_.tokens, window_);
    } else if (answers_.logits) {
      uint64_t bytes = 1;
      for (const gguf::Tensor& t : model_.header.tensors) bytes += t.bytes;
      const auto length =
          static_cast<int32_t>(std::clamp<uint64_t>(kReadForText / bytes, kShortestText, kWindow));
      wanted.length = std::min(window_, length);
      Result<Texts> own =
          write_own_text(shared(model_), engine_options(), wanted, [this](double share) {
            if (options_.on_progress) options_.on_progress(kTextShare * share);
          });
      if (!own.ok()) return own.status();
      texts = std::move(*own);
    } else {
      wanted.tokens = std::min<size_t>(wanted.tokens, 512);
      texts = draw_tokens(program_.hp.n_vocab, wanted);
    }
    for (std::vector<Token>& text : texts) {
      tokens_ += text.size();
      windows_.emplace_back().tokens = std::move(text);
    }
    if (tokens_ == 0)
      return error(Code::kPromptEmpty, "the text for the measurement has no tokens");
    for (Window& w : windows_) {
      const size_t n = w.tokens.size() * std::min<size_t>(max_positions_, tokens_) / tokens_;
      w.compared = even(std::max<size_t>(1, n), w.tokens.size());
      w.first_answer = positions_;
      positions_ += w.compared.size();
    }
    return {};
  }

  [[nodiscard]] static Status run(const TrialModel& on, const Window& w,
                                  const session::PartialForward& part) {
    return run_part(*on.model, *on.session, w.tokens, part);
  }

  // Calls each(i, logits) for the window's compared positions; `states` are those behind the last
  // layer.
  template <class Each>
  [[nodiscard]] Status answer(const TrialModel& on, const Window& w, std::span<const float> states,
                              const Each& each) const {
    std::vector<float> rows;
    for (const size_t position : w.compared) {
      const std::span<const float> row = states.subspan(position * width_, width_);
      rows.insert(rows.end(), row.begin(), row.end());
    }
    const auto most = static_cast<size_t>(on.model->engine().plan().batch.logits_rows);
    for (size_t at = 0; at < w.compared.size(); at += most) {
      const size_t n = std::min(most, w.compared.size() - at);
      const std::span<const float> from = std::span(rows).subspan(at * width_, n * width_);
      SLUICE_RETURN_IF_ERROR(run(on, w, {cuts_->tail, cuts_->end, from}));
      for (size_t i = 0; i < n; ++i) each(at + i, on.session->logits(static_cast<int32_t>(i)));
    }
    return {};
  }
  // The same for an embedding model.
  template <class Each>
  [[nodiscard]] Status embed(const TrialModel& on, const Window& w, const Each& each) const {
    const auto end = static_cast<int32_t>(w.tokens.size());
    on.session->clear();
    SLUICE_RETURN_IF_ERROR(on.session->begin_embedding(w.tokens, {{&end, 1}}));
    SLUICE_RETURN_IF_ERROR(on.model->run(*on.session));
    for (size_t i = 0; i < w.compared.size(); ++i) {
      each(i, on.session->embedding(static_cast<int32_t>(w.compared[i])));
    }
    return {};
  }

  [[nodiscard]] Status run_whole() {
    const Result<TrialModel> on = open(nullptr);
    if (!on.ok()) return on.status();
    const auto keep = [this](size_t, std::span<const float> answer) {
      answers_.width = answer.size();
      answers_.rows.insert(answers_.rows.end(), answer.begin(), answer.end());
    };
    for (Window& w : windows_) {
      if (!answers_.logits) {
        SLUICE_RETURN_IF_ERROR(embed(*on, w, keep));
        continue;
      }
      SLUICE_RETURN_IF_ERROR(keep_states(*on, &w));
      SLUICE_RETURN_IF_ERROR(answer(*on, w, w.before.back(), keep));
    }
    if (answers_.rows.size() != positions_ * answers_.width) {
      return error(Code::kInternal, "reference outputs are missing");
    }
    for (size_t i = 0; answers_.logits && i < positions_; ++i) {
      to_log_probabilities(std::span(answers_.rows).subspan(i * answers_.width, answers_.width));
    }
    return {};
  }
  [[nodiscard]] Status keep_states(const TrialModel& on, Window* w) const {
    const size_t n = cuts_->layer.size();
    w->before.resize(n + 1);
    if (!keeps_) return run(on, *w, {0, cuts_->tail, {}, &w->before[n]});
    SLUICE_RETURN_IF_ERROR(
        run(on, *w, {0, n > 0 ? cuts_->layer[0] : cuts_->tail, {}, &w->before[0]}));
    for (size_t l = 0; l < n; ++l) {
      SLUICE_RETURN_IF_ERROR(
          run(on, *w, {cuts_->layer[l], cuts_->behind(l), w->before[l], &w->before[l + 1]}));
    }
    return {};
  }

  // Tests whether a pass can begin at a layer in a new engine. It cannot if layers read more of
  // earlier ones than the residual stream.
  [[nodiscard]] Status try_parts() {
    if (!keeps_ || !answers_.logits) return {};
    const size_t n = cuts_->layer.size();
    for (const size_t layer : {n / 2, n > 0 ? n - 1 : 0}) {
      const Result<TrialModel> on = open(nullptr);
      if (!on.ok()) return on.status();
      std::vector<float> states;
      const Window& w = windows_[0];
      SLUICE_RETURN_IF_ERROR(run(*on, w, {start_of(layer), cuts_->tail, w.before[layer], &states}));
      keeps_ = keeps_ && states == w.before[n];
    }
    return {};
  }
  [[nodiscard]] size_t start_of(size_t layer) const {
    return layer < cuts_->layer.size() ? cuts_->layer[layer] : cuts_->tail;
  }

  // The layer at which a probe's forward pass begins; -1: at the start.
  [[nodiscard]] int32_t start_of(const Probe& probe) const {
    const int32_t layer = first_layer(program_, probe.tensors);
    const bool behind_all = layer >= static_cast<int32_t>(cuts_->layer.size());
    return keeps_ || behind_all ? layer : -1;
  }
  [[nodiscard]] double work_of(const Probe& probe) const {
    double work = work_from(program_, start_of(probe)) * static_cast<double>(tokens_);
    work += static_cast<double>(answer_width() * positions_ *
                                static_cast<uint64_t>(program_.hp.n_embd));
    return work;
  }

  // Output change at each compared position.
  [[nodiscard]] Result<std::vector<float>> changes_of(const Probe& probe) const {
    const Result<TrialModel> on = open(&probe);
    if (!on.ok()) return on.status();
    std::vector<float> out;
    std::vector<float> states;
    const int32_t start = answers_.logits ? start_of(probe) : -1;
    for (const Window& w : windows_) {
      const auto compare = [&](size_t i, std::span<const float> answer) {
        const auto whole =
            std::span(answers_.rows).subspan((w.first_answer + i) * answers_.width, answers_.width);
        out.push_back(static_cast<float>(answers_.logits ? divergence_from(whole, answer)
                                                         : share_of_change(whole, answer)));
      };
      if (!answers_.logits) {
        SLUICE_RETURN_IF_ERROR(embed(*on, w, compare));
        continue;
      }
      const session::PartialForward part =
          start < 0 ? session::PartialForward{0, cuts_->tail, {}, &states}
                    : session::PartialForward{start_of(static_cast<size_t>(start)), cuts_->tail,
                                              w.before[static_cast<size_t>(start)], &states};
      SLUICE_RETURN_IF_ERROR(run(*on, w, part));
      SLUICE_RETURN_IF_ERROR(answer(*on, w, states, compare));
    }
    return out;
  }

  // Normalizes each position by the sum of all probes' changes there, so that a few unstable
  // positions do not dominate. The result is scaled back to the mean change.
  void weigh(const std::vector<std::vector<float>>& changes) {
    std::vector<double> by_position(positions_);
    double all = 0;
    for (const std::vector<float>& of : changes) {
      for (size_t i = 0; i < positions_; ++i) by_position[i] += of[i];
    }
    size_t changed = 0;
    for (const double sum : by_position) {
      all += sum;
      changed += sum > 0 ? 1 : 0;
    }
    for (size_t p = 0; p < changes.size(); ++p) {
      double share = 0;
      for (size_t i = 0; i < positions_; ++i) {
        if (by_position[i] > 0) share += changes[p][i] / by_position[i];
      }
      plan_.probes[p].change =
          changed > 0 ? share / static_cast<double>(changed) * all / static_cast<double>(positions_)
                      : 0;
    }
  }

  const SensitivityOptions& options_;
  native::ModelHeader model_;
  gguf::Header stored_header_;
  std::unique_ptr<convert::Source> stored_;
  model::Program program_;
  TrialPlan plan_;
  std::unique_ptr<TextChunks> cuts_;
  size_t width_ = 0;
  int32_t window_ = 0;
  uint64_t rows_ = 1, max_positions_ = 0, held_ = 0;
  bool keeps_ = false;  // residual streams are kept, so that a pass can begin at a layer
  std::vector<Window> windows_;
  size_t tokens_ = 0, positions_ = 0;
  Answers answers_;
};

}  // namespace

Result<MeasuredSensitivity> measure_sensitivity(const SensitivityOptions& options) {
  return Sweep(options).measure();
}

bool says_unmeasurable(const Status& status) {
  switch (status.code()) {
    case Code::kUnsupportedArchitecture:
    case Code::kUnsupportedTokenizer:
    case Code::kUnsupportedType:
    case Code::kMissingTensor:
    case Code::kBadShape:
    case Code::kBadTokenizer:
    case Code::kBudgetTooSmall:
    case Code::kOutOfMemory:
    case Code::kInvalidArgument:
    case Code::kContextFull:
    case Code::kPromptTooLong:
      return true;
    default:
      return false;
  }
}

}  // namespace sluice::measure

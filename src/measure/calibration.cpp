// Runs each window of the text as one batch. The residual stream between layers is kept here, so
// that the later layers can run with and without a given layer.
#include "measure/calibration.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <optional>

#include "approximate/layer_skipping.h"
#include "measure/hessian_collector.h"
#include "measure/imatrix_collector.h"
#include "measure/kl_divergence.h"
#include "measure/text_chunks.h"

namespace sluice::measure {
namespace {

using session::Token;

constexpr uint64_t kLogitsBytes = 32ull << 20;  // of logits held at a time
constexpr size_t kExitTokens = 2048;  // at most so many tokens are read for early exits and cosines
constexpr size_t kAbsenceTokens = 512;  // at most so many tokens are read without each layer
constexpr size_t kMinPositions = 256, kMaxPositions = 2048;  // early exit positions
constexpr double kHeadWork = 2e12;  // multiplications that the output head may take for early exits

double marked(const std::vector<uint8_t>& layers) {
  return static_cast<double>(std::ranges::count(layers, 1));
}

class Reader {
 public:
  Reader(const CalibrationOptions& how, const gguf::Header& header, native::Model& model,
         session::Session& session, std::vector<uint8_t> may_leave, const HessianPlan& hessians)
      : how_(how),
        model_(model),
        session_(session),
        program_(model.engine().program()),
        cuts_(program_),
        width_(static_cast<size_t>(model.engine().context().width(model::Buf::kX))),
        rows_(static_cast<size_t>(std::min(model.engine().plan().batch.logits_rows,
                                           model.engine().plan().batch.n_batch))),
        moments_(header),
        may_leave_(std::move(may_leave)) {
    if (how.hessians) hessians_.emplace(header, hessians, how.threads);
    const size_t n = cuts_.layer.size();
    out_.layers.resize(n);
    cosines_.resize(n);
    seen_.resize(n);
    may_skip_.resize(n);
    for (const int32_t layer : approximate::skippable_layers(program_)) {
      may_skip_[static_cast<size_t>(layer)] = 1;
    }
  }

  [[nodiscard]] Result<Calibration> read(std::span<const Token> text) {
    cut(text);
    for (const Window& w : windows_) {
      if (w.judged || how_.moments) SLUICE_RETURN_IF_ERROR(read_window(w));
    }
    return finish(text.size());
  }

 private:
  struct Window {
    std::vector<Token> tokens;
    bool judged = false, without = false;  // measured for exits and cosines; and without each layer
  };

  // Cuts the text into windows and spreads the measured ones evenly over it.
  void cut(std::span<const Token> text) {
    const tokenizer::Tokenizer& vocabulary = model_.engine().tokenizer();
    const session::MemoryPlan& plan = model_.engine().plan();
    const size_t opening = vocabulary.adds_bos() && vocabulary.bos() >= 0 ? 1 : 0;
    const auto most = static_cast<size_t>(std::min(plan.batch.n_batch, plan.context.n_ctx));
    const size_t room = std::max<size_t>(1, most - std::min(most, opening));
    for (size_t at = 0; at < text.size(); at += room) {
      Window& w = windows_.emplace_back();
      w.tokens.assign(opening, vocabulary.bos());
      const std::span<const Token> part = text.subspan(at, std::min(room, text.size() - at));
      w.tokens.insert(w.tokens.end(), part.begin(), part.end());
    }
    const size_t whole = std::max<size_t>(1, text.size() / room);
    const size_t judged = std::clamp<size_t>(kExitTokens / most, 1, whole);
    const size_t without = std::clamp<size_t>(kAbsenceTokens / most, 1, judged);
    for (size_t i = 0; i < judged; ++i) windows_[i * whole / judged].judged = true;
    for (size_t i = 0; i < without; ++i) {
      windows_[i * judged / without * whole / judged].without = true;
    }
    const auto exits = marked(may_leave_);
    const double positions = kHeadWork / (row_work() * std::max(1.0, exits));
    looked_at_ = static_cast<size_t>(std::clamp<double>(positions, kMinPositions, kMaxPositions));
    looked_at_ = (looked_at_ + judged - 1) / judged;
    for (const Window& w : windows_) total_ += work_of_window(w);
  }

  [[nodiscard]] double work_of_window(const Window& w) const {
    if (!w.judged && !how_.moments) return 0;
    const auto n = static_cast<int32_t>(cuts_.layer.size());
    double work = work_between(program_, 0, n);
    for (int32_t l = 0; w.without && l < n; ++l) {
      if (may_skip_[static_cast<size_t>(l)] != 0) work += work_between(program_, l + 1, n);
    }
    return work * static_cast<double>(w.tokens.size()) + head_work(w);
  }
  // Multiplications of the output head for one row of logits.
  [[nodiscard]] double row_work() const {
    const model::Mat& head = program_.mats[static_cast<size_t>(program_.head)];
    return static_cast<double>(head.rows) * static_cast<double>(head.cols);
  }
  [[nodiscard]] double head_work(const Window& w) const {
    double rows = static_cast<double>(rows_);
    if (w.without) rows *= 1 + marked(may_skip_);
    if (w.judged) {
      rows += static_cast<double>(looked_at_) * (1 + marked(may_leave_));
    }
    return rows * row_work();
  }

  // Runs a part of the model. `counts`: the matrix inputs go into the importance matrix.
  [[nodiscard]] Status run(const Window& w, const session::PartialForward& part, bool counts) {
    const bool watched = counts && how_.moments;
    session_.context().executor->watch_products(watched ? session::ProductWatch{see, this}
                                                        : session::ProductWatch{});
    return run_part(model_, session_, w.tokens, part);
  }
  static void see(void* context, const model::Mat& mat, const float* x, int64_t ld, int32_t n) {
    auto* const self = static_cast<Reader*>(context);
    self->moments_.add(mat, x, ld, n);
    if (self->hessians_.has_value()) self->hessians_->add(mat, x, ld, n);
  }
  void worked(double work) {
    done_ += work;
    if (how_.on_progress) how_.on_progress(std::min(1.0, done_ / total_));
  }

  void gather(std::span<const float> states, const std::vector<size_t>& rows,
              std::vector<float>* out) const {
    for (const size_t row : rows) {
      const auto from = states.subspan(row * width_, width_);
      out->insert(out->end(), from.begin(), from.end());
    }
  }

  // Calls each(row, logits) for rows of states behind the last layer.
  template <class Each>
  [[nodiscard]] Status for_logits(const Window& w, std::span<const float> states, bool counts,
                                  const Each& each) {
    for (size_t at = 0; at * width_ < states.size(); at += rows_) {
      const size_t n = std::min(rows_, states.size() / width_ - at);
      const session::PartialForward part{cuts_.tail, cuts_.end,
                                         states.subspan(at * width_, n * width_)};
      SLUICE_RETURN_IF_ERROR(run(w, part, counts));
      for (size_t i = 0; i < n; ++i) each(at + i, session_.logits(static_cast<int32_t>(i)));
    }
    return {};
  }

  // States at sampled positions of a window, kept until the last layer has run.
  struct Kept {
    std::vector<size_t> compared, looked_at;
    std::vector<std::vector<float>> without;  // by ablated layer: states behind the last layer
    std::vector<std::vector<float>> behind;   // by layer: states behind it
  };

  [[nodiscard]] Status read_window(const Window& w) {
    if (w.judged) return read_layers(w);
    SLUICE_RETURN_IF_ERROR(run(w, {0, cuts_.tail, {}, &now_}, true));
    std::vector<float> rows;
    gather(now_, even(rows_, w.tokens.size()), &rows);
    SLUICE_RETURN_IF_ERROR(for_logits(w, rows, true, [](size_t, std::span<const float>) {}));
    worked(work_of_window(w));
    return {};
  }

  [[nodiscard]] Status read_layers(const Window& w) {
    const size_t n_layer = cuts_.layer.size();
    const auto n = static_cast<int32_t>(n_layer);
    const double before = done_;
    Kept kept;
    kept.without.resize(n_layer);
    kept.behind.resize(n_layer);
    kept.compared = even(rows_, w.tokens.size());
    kept.looked_at = even(looked_at_, w.tokens.size());
    SLUICE_RETURN_IF_ERROR(run(w, {0, cuts_.layer[0], {}, &now_}, true));
    for (size_t l = 0; l < n_layer; ++l) {
      before_.swap(now_);
      SLUICE_RETURN_IF_ERROR(run(w, {cuts_.layer[l], cuts_.behind(l), before_, &now_}, true));
      const double tokens = static_cast<double>(w.tokens.size());
      const auto layer = static_cast<int32_t>(l);
      worked(tokens * work_between(program_, layer, layer + 1));
      note_layer(l, &kept);
      if (!w.without || may_skip_[l] == 0) continue;
      SLUICE_RETURN_IF_ERROR(run(w, {cuts_.behind(l), cuts_.tail, before_, &other_}, false));
      gather(other_, kept.compared, &kept.without[l]);
      worked(tokens * work_between(program_, layer + 1, n));
    }
    SLUICE_RETURN_IF_ERROR(compare(w, kept));
    SLUICE_RETURN_IF_ERROR(look_at_exits(w, kept));
    worked(work_of_window(w) - (done_ - before));
    return {};
  }

  // Records what layer l changed: its input is before_, its output now_.
  void note_layer(size_t l, Kept* kept) {
    const auto mark = std::ranges::find_if(program_.marks, [l](const model::Mark& m) {
      return m.layer == static_cast<int32_t>(l) && m.buf == model::Buf::kX &&
             std::string_view(m.name) == "l_out";
    });
    for (size_t at = 0; mark != program_.marks.end() && at < now_.size(); at += width_) {
      const size_t first = at + static_cast<size_t>(mark->col);
      const size_t n = static_cast<size_t>(mark->ne0) * static_cast<size_t>(mark->ne1);
      cosines_[l].sum +=
          cosine(std::span(before_).subspan(first, n), std::span(now_).subspan(first, n));
      cosines_[l].n += 1;
    }
    if (l >= may_leave_.size() || may_leave_[l] == 0) return;
    gather(now_, kept->looked_at, &kept->behind[l]);
    for (const size_t row : kept->looked_at) {
      seen_[l].features.push_back(approximate::exit_features(
          before_.data() + row * width_, now_.data() + row * width_, program_.hp.n_embd));
    }
  }

  // Compares the logits of the whole model with those without each layer.
  [[nodiscard]] Status compare(const Window& w, const Kept& kept) {
    if (!w.without && !how_.moments) return {};
    std::vector<float> rows, whole;
    gather(now_, kept.compared, &rows);
    SLUICE_RETURN_IF_ERROR(for_logits(w, rows, true, [&](size_t, std::span<const float> logits) {
      if (w.without) whole.insert(whole.end(), logits.begin(), logits.end());
    }));
    if (!w.without) return {};
    out_.compared += kept.compared.size();
    for (size_t l = 0; l < kept.without.size(); ++l) {
      if (kept.without[l].empty()) continue;
      double& sum = out_.layers[l].divergence;
      sum = std::max(0.0, sum);
      SLUICE_RETURN_IF_ERROR(
          for_logits(w, kept.without[l], false, [&](size_t i, std::span<const float> logits) {
            const size_t n = logits.size();
            sum += divergence(std::span(whole).subspan(i * n, n), logits);
          }));
    }
    return {};
  }

  // Checks behind which layers the output head already predicts the final token.
  [[nodiscard]] Status look_at_exits(const Window& w, const Kept& kept) {
    if (marked(may_leave_) == 0) return {};
    const auto likeliest = [](std::span<const float> logits) {
      return std::max_element(logits.begin(), logits.end()) - logits.begin();
    };
    std::vector<float> rows;
    std::vector<ptrdiff_t> best;
    gather(now_, kept.looked_at, &rows);
    SLUICE_RETURN_IF_ERROR(for_logits(w, rows, false, [&](size_t, std::span<const float> logits) {
      best.push_back(likeliest(logits));
    }));
    for (size_t l = 0; l < kept.behind.size(); ++l) {
      if (kept.behind[l].empty()) continue;
      SLUICE_RETURN_IF_ERROR(
          for_logits(w, kept.behind[l], false, [&](size_t i, std::span<const float> logits) {
            seen_[l].settled.push_back(likeliest(logits) == best[i]);
          }));
      worked(static_cast<double>(kept.looked_at.size()) * row_work());
    }
    return {};
  }

  [[nodiscard]] Result<Calibration> finish(size_t tokens) {
    out_.tokens = tokens;
    for (size_t l = 0; l < out_.layers.size(); ++l) {
      LayerAblation& worth = out_.layers[l];
      if (cosines_[l].n > 0) worth.cosine = cosines_[l].sum / cosines_[l].n;
      if (worth.divergence >= 0) {
        worth.divergence = std::max(0.0, worth.divergence / static_cast<double>(out_.compared));
      }
    }
    if (!may_leave_.empty()) out_.exits = fit_exits(seen_);
    if (how_.moments) {
      Result<convert::Imatrix> importance = moments_.importance();
      if (!importance.ok()) return importance.status();
      out_.importance = std::move(*importance);
      if (hessians_.has_value()) out_.hessians = hessians_->hessians();
    }
    return std::move(out_);
  }

  struct Mean {
    double sum = 0, n = 0;
  };

  const CalibrationOptions& how_;
  native::Model& model_;
  session::Session& session_;
  const model::Program& program_;
  TextChunks cuts_;
  size_t width_, rows_;  // floats per state; rows of logits at a time
  ImatrixCollector moments_;
  std::optional<HessianCollector> hessians_;
  std::vector<uint8_t> may_leave_, may_skip_;  // by layer; may_leave_ is empty without early exits
  std::vector<Window> windows_;
  size_t looked_at_ = 0;  // positions per window at which early exits are evaluated
  double done_ = 0, total_ = 0;
  std::vector<float> before_, now_, other_;  // residual streams of a window
  std::vector<Mean> cosines_;
  std::vector<ObservedExit> seen_;
  Calibration out_;
};

// Bytes that a Reader holds beside the engine, with `rows` rows of logits.
uint64_t held_by(const model::Program& p, uint64_t rows) {
  const auto width = static_cast<uint64_t>(p.width[static_cast<size_t>(model::Buf::kX)]);
  const auto layers = static_cast<uint64_t>(p.hp.n_layer);
  const uint64_t looked_at = std::max(kMaxPositions, kExitTokens) * kWindow / kExitTokens;
  const uint64_t states = 3 * kWindow + (layers + 1) * (rows + looked_at);
  const uint64_t moments = 8 * 2 * static_cast<uint64_t>(p.hp.n_embd) * p.mats.size();
  return 4 * (states * width + rows * static_cast<uint64_t>(p.hp.n_vocab)) + moments;
}

}  // namespace

std::vector<float> importance_of(const std::vector<LayerAblation>& layers) {
  std::vector<float> out;
  for (const LayerAblation& l : layers) {
    out.push_back(l.divergence < 0 ? FLT_MAX : static_cast<float>(l.divergence));
  }
  return out;
}

Result<Calibration> calibrate(const CalibrationOptions& how) {
  native::LoadOptions load;
  load.source = how.source;
  const Result<native::ModelHeader> described = native::read_header(how.model, load.source);
  if (!described.ok()) return described.status();
  Result<model::Program> program = model::build_program(described->header);
  if (!program.ok()) return program.status();
  if (program->head < 0) {
    return error(Code::kInvalidArgument,
                 "cannot calibrate a \"%s\" model: it computes embeddings, not logits",
                 program->hp.arch.c_str());
  }
  const auto vocabulary = static_cast<uint64_t>(std::max<int64_t>(1, program->hp.n_vocab));
  const uint64_t logits = std::min(kLogitsBytes, how.memory_budget / 16) / (4 * vocabulary);
  const uint64_t rows = std::clamp<uint64_t>(logits, 1, kWindow);
  HessianPlan hessians;
  if (how.hessians) {
    const Result<HessianPlan> found = plan_hessians(described->header, how.memory_budget);
    if (!found.ok()) return found.status();
    hessians = *found;
    load.engine.base_bytes = hessians.bytes;
  }
  load.engine.memory_budget = how.memory_budget;
  load.engine.base_bytes += held_by(*program, rows);
  load.engine.n_threads = how.threads;
  load.engine.n_ctx = window_of(described->header);
  load.engine.n_batch = load.engine.n_ctx;
  load.engine.logits_rows = static_cast<int32_t>(rows);
  Result<std::unique_ptr<native::Model>> model = native::Model::open(how.model, load);
  if (!model.ok()) return model.status();
  const std::vector<Token> tokens = (*model)->engine().tokenizer().encode(how.text, {false, false});
  if (tokens.empty()) return error(Code::kPromptEmpty, "the calibration text has no tokens");
  Result<std::unique_ptr<session::Session>> session =
      session::Session::create((*model)->engine().context());
  if (!session.ok()) return session.status();
  Result<std::vector<uint8_t>> may = approximate::exit_layers(*program);
  Reader reader(how, described->header, **model, **session,
                may.ok() ? std::move(*may) : std::vector<uint8_t>(), hessians);
  return reader.read(tokens);
}

}  // namespace sluice::measure

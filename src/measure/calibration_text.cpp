// Several texts are generated in one batch, because each forward pass then reads the weights once
// for all of them.
#include "measure/calibration_text.h"

#include <algorithm>
#include <random>

#include "sample/sampler.h"
#include "session/batcher.h"

namespace sluice::measure {
namespace {

using session::Token;

// The token that a text starts from.
Token opening_of(const tokenizer::Tokenizer& vocabulary) {
  return vocabulary.bos() >= 0 ? vocabulary.bos() : std::max(vocabulary.eos(), Token{0});
}

class TextWriter {
 public:
  TextWriter(native::Model& model, const CalibrationText& wanted)
      : model_(model),
        wanted_(wanted),
        vocabulary_(model.engine().tokenizer()),
        batcher_(model.engine().context()) {}

  [[nodiscard]] Status start(int32_t beside) {
    sample::Params params;
    params.temperature = 1;
    params.top_k = 0;
    params.top_p = 1;
    params.min_p = 0;
    for (int32_t i = 0; i < beside; ++i) {
      Result<std::unique_ptr<session::Session>> session =
          session::Session::create(model_.engine().context());
      if (!session.ok()) return session.status();
      params.seed = static_cast<uint64_t>(i);
      Line& line =
          lines_.emplace_back(Line{std::move(*session),
                                   sample::Sampler(params, model_.engine().program().hp.n_vocab),
                                   {opening_of(vocabulary_)}});
      if (!line.sampler.allocated())
        return error(Code::kOutOfMemory, "out of memory for a sampler");
      if (beside > 1) SLUICE_RETURN_IF_ERROR(batcher_.add(*line.session));
    }
    return {};
  }

  [[nodiscard]] Result<Texts> write(const std::function<void(double)>& on_progress) {
    for (size_t n = 0; n < wanted_.tokens;) {
      SLUICE_RETURN_IF_ERROR(pass());
      for (Line& line : lines_) go_on(&line);
      n += lines_.size();
      if (on_progress) {
        on_progress(std::min(1.0, static_cast<double>(n) / static_cast<double>(wanted_.tokens)));
      }
    }
    for (Line& line : lines_) {
      if (line.text.size() > 1) texts_.push_back(std::move(line.text));
    }
    return std::move(texts_);
  }

 private:
  struct Line {
    std::unique_ptr<session::Session> session;
    sample::Sampler sampler;
    std::vector<Token> text;
    Token next = sample::kNoToken;
  };

  // Runs the last token of each line through the model and samples the next one.
  [[nodiscard]] Status pass() {
    for (Line& line : lines_) {
      SLUICE_RETURN_IF_ERROR(line.session->begin(std::span(line.text).last(1)));
      line.next = sample::kNoToken;
    }
    if (lines_.size() == 1) {
      SLUICE_RETURN_IF_ERROR(model_.run(*lines_[0].session));
      return draw(&lines_[0]);
    }
    while (batcher_.waiting()) {
      SLUICE_RETURN_IF_ERROR(model_.drive([this](int32_t n) { return batcher_.step(n); }));
      for (Line& line : lines_) {
        if (line.session->busy() || line.next != sample::kNoToken) continue;
        SLUICE_RETURN_IF_ERROR(draw(&line));
      }
    }
    return {};
  }
  [[nodiscard]] Status draw(Line* line) {
    SLUICE_RETURN_IF_ERROR(line->session->failure());
    line->next = line->sampler.sample(line->session->logits(0), line->text);
    if (line->next != sample::kNoToken) return {};
    return error(Code::kBadWeights, "the model's logits are not finite: the file may be damaged");
  }
  // Appends the sampled token, or finishes the text and starts another.
  void go_on(Line* line) {
    const bool full = line->text.size() >= static_cast<size_t>(wanted_.length);
    if (!full && !vocabulary_.is_end_of_generation(line->next)) {
      line->text.push_back(line->next);
      return;
    }
    line->session->clear();
    texts_.push_back(std::move(line->text));
    line->text = {opening_of(vocabulary_)};
  }

  native::Model& model_;
  const CalibrationText& wanted_;
  const tokenizer::Tokenizer& vocabulary_;
  session::Batcher batcher_;
  std::vector<Line> lines_;
  Texts texts_;
};

}  // namespace

Result<Texts> write_own_text(native::ModelHeader header, const session::EngineOptions& options,
                             const CalibrationText& wanted,
                             const std::function<void(double share)>& on_progress) {
  session::EngineOptions engine = options;
  engine.n_ctx = wanted.length + 1;
  engine.n_batch = 0;
  engine.logits_rows = 1;
  engine.parallel = wanted.beside;
  Result<std::unique_ptr<native::Model>> model = native::Model::open(std::move(header), engine);
  if (!model.ok()) return model.status();
  const bool together = session::Batcher::takes((*model)->engine().context());
  TextWriter writer(**model, wanted);
  SLUICE_RETURN_IF_ERROR(writer.start(
      together ? std::min(wanted.beside, (*model)->engine().plan().sessions.parallel) : 1));
  return writer.write(on_progress);
}

Texts cut_text(const tokenizer::Tokenizer& vocabulary, const std::string& text, size_t tokens,
               int32_t window) {
  const std::vector<Token> all = vocabulary.encode(text, {false, false});
  const size_t opening = vocabulary.adds_bos() && vocabulary.bos() >= 0 ? 1 : 0;
  const size_t room = static_cast<size_t>(window) - opening;
  const size_t there = (all.size() + room - 1) / room;
  const size_t n = std::min(there, (tokens + room - 1) / room);
  Texts out;
  for (size_t i = 0; i < n; ++i) {
    std::vector<Token>& w = out.emplace_back(opening, vocabulary.bos());
    const size_t from = i * there / n * room;
    w.insert(w.end(), all.begin() + static_cast<ptrdiff_t>(from),
             all.begin() + static_cast<ptrdiff_t>(std::min(from + room, all.size())));
  }
  return out;
}

Texts draw_tokens(int64_t n_vocab, const CalibrationText& wanted) {
  std::mt19937_64 random(1);
  Texts texts;
  for (size_t n = 0; n < wanted.tokens; n += texts.back().size()) {
    std::vector<Token>& text = texts.emplace_back();
    for (int32_t i = 0; i < wanted.length; ++i) {
      text.push_back(
          static_cast<Token>(random() % static_cast<uint64_t>(std::max<int64_t>(1, n_vocab))));
    }
  }
  return texts;
}

}  // namespace sluice::measure

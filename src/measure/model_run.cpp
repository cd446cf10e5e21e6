// One session; every part of a comparison begins with an empty cache.
#include "measure/model_run.h"

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "measure/kl_divergence.h"

namespace sluice::measure {
namespace {

using session::Token;

constexpr int32_t kContext = 512;  // at least, for prompts
constexpr int32_t kRows = 32;      // rows of logits per forward pass

}  // namespace

Result<std::unique_ptr<ModelRun>> ModelRun::open(const std::string& source,
                                                 native::LoadOptions load, int32_t n_ctx) {
  load.engine.n_ctx = std::max(n_ctx, kContext);
  load.engine.logits_rows = load.engine.memory_budget > 0 ? 1 : kRows;
  std::unique_ptr<ModelRun> out(new ModelRun);
  Result<std::unique_ptr<native::Model>> model = native::Model::open(source, load);
  if (!model.ok()) return model.status();
  out->model_ = std::move(*model);
  const model::Program& program = out->engine().program();
  if (!program.hp.attention.causal || program.decoder > 0) {
    return error(Code::kInvalidArgument,
                 "only models that generate text token by token can be "
                 "compared; \"%s\" is not one",
                 program.hp.arch.c_str());
  }
  auto session = session::Session::create(out->model_->engine().context());
  if (!session.ok()) return session.status();
  out->session_ = std::move(*session);
  return out;
}

const tokenizer::Tokenizer& ModelRun::vocabulary() const {
  return model_->engine().tokenizer();
}

Status ModelRun::pass(std::span<const Token> tokens, session::Wanted wanted) {
  SLUICE_RETURN_IF_ERROR(session_->begin(tokens, wanted));
  return model_->run(*session_);
}

Result<std::vector<GreedyToken>> ModelRun::greedy(const std::string& prompt, int32_t n) {
  std::vector<GreedyToken> out;
  std::vector<Token> tokens = vocabulary().encode(prompt, {true, false});
  if (tokens.empty()) return error(Code::kPromptEmpty, "a prompt is empty");
  session_->clear();
  while (static_cast<int32_t>(out.size()) < n) {
    SLUICE_RETURN_IF_ERROR(pass(tokens, session::Wanted::kLastLogits));
    const std::span<const float> logits = session_->logits();
    const auto top = std::max_element(logits.begin(), logits.end());
    GreedyToken token{static_cast<Token>(top - logits.begin()), INFINITY};
    for (size_t i = 0; i < logits.size(); ++i) {
      if (static_cast<Token>(i) != token.id) token.gap = std::min(token.gap, *top - logits[i]);
    }
    out.push_back(token);
    if (vocabulary().is_end_of_generation(token.id)) break;
    tokens = {token.id};
  }
  return out;
}

std::string ModelRun::text_of(std::span<const GreedyToken> tokens) const {
  std::string text;
  for (const GreedyToken& token : tokens) text += vocabulary().token_bytes(token.id, false);
  return text;
}

Result<Chunks> ModelRun::cut(const std::string& text, int32_t n_ctx, int32_t n_chunks) const {
  Chunks out;
  out.n_ctx = n_ctx;
  out.n_vocab = static_cast<int32_t>(engine().program().hp.n_vocab);
  out.tokens = vocabulary().encode(text, {true, false});
  const auto there = static_cast<int32_t>(out.tokens.size()) / n_ctx;
  if (there < 2) {
    return error(Code::kPromptEmpty, "the text has %zu tokens, but two chunks of %d are needed",
                 out.tokens.size(), n_ctx);
  }
  out.n_chunks = std::min(n_chunks, there);
  out.tokens.resize(static_cast<size_t>(out.n_chunks) * static_cast<size_t>(n_ctx));
  return out;
}

void ModelRun::begin(const Chunks& chunks) {
  chunks_ = chunks;
  chunk_ = at_ = row_ = rows_ = 0;
}

Status ModelRun::start_chunk() {
  const auto first = chunks_.tokens.begin() + int64_t{chunk_} * chunks_.n_ctx;
  window_.assign(first, first + chunks_.n_ctx);
  if (vocabulary().adds_bos() && vocabulary().bos() >= 0) window_[0] = vocabulary().bos();
  at_ = chunks_.n_ctx / 2;
  session_->clear();
  return pass(std::span(window_).first(static_cast<size_t>(at_)), session::Wanted::kLastLogits);
}

Result<std::span<const float>> ModelRun::next_row() {
  if (row_ == rows_) {
    if (at_ > 0 && at_ + 1 >= chunks_.n_ctx) {
      ++chunk_;
      at_ = 0;
    }
    if (chunk_ >= chunks_.n_chunks) return error(Code::kInternal, "the text has no further row");
    if (at_ == 0) SLUICE_RETURN_IF_ERROR(start_chunk());
    const session::MemoryPlan& plan = engine().plan();
    rows_ = std::min({plan.batch.logits_rows, plan.batch.n_batch, chunks_.n_ctx - 1 - at_});
    row_ = 0;
    SLUICE_RETURN_IF_ERROR(
        pass(std::span(window_).subspan(static_cast<size_t>(at_), static_cast<size_t>(rows_)),
             session::Wanted::kAllLogits));
    at_ += rows_;
  }
  return std::span<const float>(session_->logits(row_++));
}

Result<Rates> ModelRun::rates() {
  std::vector<Token> tokens(kRatePrompt + kRateGenerated);
  const auto n_vocab = static_cast<size_t>(engine().program().hp.n_vocab);
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<Token>((i * 7919 + 13) % n_vocab);
  }
  const std::span<const Token> all(tokens);
  Rates out;
  for (int32_t i = -1; i < kRateRepeats; ++i) {  // the first time warms up
    session_->clear();
    const double start = monotonic_ms();
    SLUICE_RETURN_IF_ERROR(pass(all.first(kRatePrompt), session::Wanted::kLastLogits));
    const double middle = monotonic_ms();
    for (size_t t = kRatePrompt; t < all.size(); ++t) {
      SLUICE_RETURN_IF_ERROR(pass(all.subspan(t, 1), session::Wanted::kLastLogits));
    }
    if (i < 0) continue;
    out.prefill += kRatePrompt * 1000 / (middle - start) / kRateRepeats;
    out.decode += kRateGenerated * 1000 / (monotonic_ms() - middle) / kRateRepeats;
  }
  return out;
}

Result<std::string> ModelBaseline::greedy(const std::string& prompt, int32_t n) {
  const Result<std::vector<GreedyToken>> tokens = run_->greedy(prompt, n);
  if (!tokens.ok()) return tokens.status();
  return run_->text_of(*tokens);
}

Result<Chunks> ModelBaseline::begin(const std::string& text, int32_t n_ctx, int32_t n_chunks) {
  Result<Chunks> chunks = run_->cut(text, n_ctx, n_chunks);
  if (chunks.ok()) run_->begin(*chunks);
  return chunks;
}

Status ModelBaseline::next_row(std::vector<float>* log_probs) {
  const Result<std::span<const float>> row = run_->next_row();
  if (!row.ok()) return row.status();
  log_probs->assign(row->begin(), row->end());
  to_log_probabilities(*log_probs);
  return {};
}

}  // namespace sluice::measure

// Runs a loaded model for a comparison: greedy tokens, the logits of a text, speed.
#pragma once

#include <memory>

#include "measure/baseline.h"
#include "native/model_file.h"

namespace sluice::measure {

struct GreedyToken {
  session::Token id = 0;
  float gap = 0;  // between the two largest logits
};

class ModelRun {
 public:
  // `load`: its context and rows of logits are set here, for chunks of n_ctx tokens.
  // Errors: those of opening a model; kInvalidArgument for one that is not a causal decoder.
  [[nodiscard]] static Result<std::unique_ptr<ModelRun>> open(const std::string& source,
                                                              native::LoadOptions load,
                                                              int32_t n_ctx);

  [[nodiscard]] const session::Engine& engine() const { return model_->engine(); }
  [[nodiscard]] const tokenizer::Tokenizer& vocabulary() const;
  // At most n tokens; the last may be one that ends the text.
  [[nodiscard]] Result<std::vector<GreedyToken>> greedy(const std::string& prompt, int32_t n);
  [[nodiscard]] std::string text_of(std::span<const GreedyToken> tokens) const;
  // The text in at most n_chunks chunks. Errors: kPromptEmpty for a text of fewer than two.
  [[nodiscard]] Result<Chunks> cut(const std::string& text, int32_t n_ctx, int32_t n_chunks) const;
  // Begins to score chunks; next_row() gives the logits [n_vocab] of one scored position after
  // another, valid until the next call.
  void begin(const Chunks& chunks);
  [[nodiscard]] Result<std::span<const float>> next_row();
  [[nodiscard]] Result<Rates> rates();

 private:
  ModelRun() = default;
  [[nodiscard]] Status pass(std::span<const session::Token> tokens, session::Wanted wanted);
  [[nodiscard]] Status start_chunk();

  std::unique_ptr<native::Model> model_;
  std::unique_ptr<session::Session> session_;
  Chunks chunks_;
  std::vector<session::Token> window_;  // the current chunk
  int32_t chunk_ = 0, at_ = 0;          // the next position of the current chunk
  int32_t row_ = 0, rows_ = 0;          // of the last pass
};

// Another model as a baseline, run by Sluice too.
class ModelBaseline final : public Baseline {
 public:
  ModelBaseline(std::string name, std::unique_ptr<ModelRun> run)
      : name_(std::move(name)), run_(std::move(run)) {}
  [[nodiscard]] std::string name() const override { return name_; }
  [[nodiscard]] Result<std::string> greedy(const std::string& prompt, int32_t n) override;
  [[nodiscard]] Result<Chunks> begin(const std::string& text, int32_t n_ctx,
                                     int32_t n_chunks) override;
  [[nodiscard]] Status next_row(std::vector<float>* log_probs) override;
  [[nodiscard]] Result<Rates> rates() override { return run_->rates(); }

 private:
  std::string name_;
  std::unique_ptr<ModelRun> run_;
};

}  // namespace sluice::measure

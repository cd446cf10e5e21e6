// Embeddings of texts, and reranker scores. Packs as many complete texts as fit into each forward
// pass of a session, then post-processes the result rows: scores, fewer dimensions, normalization.
// It stores no results: the caller takes each pass's rows before the next pass.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "session/session.h"

namespace sluice::embed {

using session::Token;

struct Options {
  std::optional<model::Pooling> pooling;  // absent: the model's own, or mean if it has none
  bool normalize = true;                  // scale to length 1; not applied to scores
  int32_t dimensions = 0;                 // keep only the first dimensions (Matryoshka); 0: all
};

class Embedder {
 public:
  // The session must outlive this and be used by nothing else meanwhile.
  explicit Embedder(session::Session& session) : session_(session) {}

  // Begins embedding texts. `tokens`: those of all texts, concatenated; `ends`: where each text
  // ends. Both are borrowed until the work is done. Errors: kInvalidArgument (options, ends),
  // kPromptEmpty and kPromptTooLong naming the text.
  [[nodiscard]] Status begin(std::span<const Token> tokens, std::span<const int32_t> ends,
                             const Options& options = {});
  // Begins the next pass; false when all texts are done. Errors: the session's.
  [[nodiscard]] Result<bool> next();
  // Runs the pass, as Session::step does.
  [[nodiscard]] session::Step step(int32_t max_ops = 0);
  [[nodiscard]] const Status& failure() const { return session_.failure(); }

  // --- results of the completed pass -------------------------------------------------------------
  // result(i) belongs to text first_result() + i; without pooling, to token first_result() + i of
  // all tokens.
  [[nodiscard]] int32_t n_results() const { return n_results_; }
  [[nodiscard]] int32_t first_result() const { return first_result_; }
  [[nodiscard]] std::span<const float> result(int32_t i) const;

  [[nodiscard]] model::Pooling pooling() const { return pooling_; }
  [[nodiscard]] int32_t width() const { return width_; }
  [[nodiscard]] int32_t texts_done() const { return text_; }

 private:
  [[nodiscard]] Status begin_pass();
  [[nodiscard]] int32_t begin_of(int32_t text) const {
    return text == 0 ? 0 : ends_[static_cast<size_t>(text) - 1];
  }
  void finish_results();

  session::Session& session_;
  std::span<const Token> tokens_;
  std::span<const int32_t> ends_;
  Options options_;
  model::Pooling pooling_ = model::Pooling::kMean;
  int32_t width_ = 0;
  int32_t text_ = 0;    // texts before it are done
  int32_t inside_ = 0;  // tokens of text_ that are done
  // The current pass: several complete texts, or a part of one.
  int32_t n_texts_ = 0, n_tokens_ = 0;
  bool part_ = false;
  int32_t first_result_ = 0, n_results_ = 0;
  std::vector<int32_t> pass_ends_;
};

// Tokens of a query and a document as a reranker reads them: in the model's pair template, or as
// BOS, query, EOS, separator, document, EOS, without those that the vocabulary does not add.
// Errors: try_encode's.
[[nodiscard]] Result<std::vector<Token>> pair_tokens(const tokenizer::Tokenizer& tokenizer,
                                                     std::string_view query,
                                                     std::string_view document);

}  // namespace sluice::embed

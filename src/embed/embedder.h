// Embeddings of texts, and scores of rerankers: packs token lists into passes of a session, as many
// whole texts as a pass holds, and finishes their rows: ranking scores, cut to fewer dimensions,
// normalized. It holds no results: whoever drives it takes each pass's rows before the next.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "session/session.h"

namespace sluice::embed {

using session::Token;

struct Options {
  std::optional<model::Pooling> pooling;  // absent: the model's own, else the mean
  bool normalize = true;                  // to length 1; scores are not
  int32_t dimensions = 0;                 // the first so many (Matryoshka); 0: all
};

class Embedder {
 public:
  // The session outlives it and is its alone meanwhile.
  explicit Embedder(session::Session& session) : session_(session) {}

  // Begins texts, given as their tokens one after the other and where each ends; both outlive the
  // work. Errors: kInvalidArgument (options, ends), kPromptEmpty and kPromptTooLong naming the
  // text.
  [[nodiscard]] Status begin(std::span<const Token> tokens, std::span<const int32_t> ends,
                             const Options& options = {});
  // Begins the next pass; false when all texts are done. Errors: those of the session.
  [[nodiscard]] Result<bool> next();
  // Works on the pass, as Session::step does.
  [[nodiscard]] session::Step step(int32_t max_ops = 0);
  [[nodiscard]] const Status& failure() const { return session_.failure(); }

  // --- of the pass that is done ------------------------------------------------------------------
  // Results: of text first_result() + i, or without pooling of token first_result() + i of all.
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
  int32_t inside_ = 0;  // tokens of it that are
  // The pass: whole texts, or a part of one.
  int32_t n_texts_ = 0, n_tokens_ = 0;
  bool part_ = false;
  int32_t first_result_ = 0, n_results_ = 0;
  std::vector<int32_t> pass_ends_;
};

// Of a pair as a reranker reads it: in the model's own text for pairs, or as BOS, query, EOS,
// separator, document, EOS, as the vocabulary has them. Errors: try_encode's.
[[nodiscard]] Result<std::vector<Token>> pair_tokens(const tokenizer::Tokenizer& tokenizer,
                                                     std::string_view query,
                                                     std::string_view document);

}  // namespace sluice::embed

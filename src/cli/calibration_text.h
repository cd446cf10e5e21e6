// A text to measure with: windows of a given one, or what the model itself writes, drawn from its
// own distribution, from the beginning on. The same one each time.
#pragma once

#include <string>
#include <vector>

#include "native/model_file.h"

namespace sluice::cli {

using Texts = std::vector<std::vector<session::Token>>;

struct CalibrationText {
  size_t tokens = 0;   // of all texts together, at least
  int32_t length = 0;  // of a text, at most
  int32_t beside = 1;  // texts that are written at once
};

// `options` are what the engine is opened with but for contexts and sessions.
// Errors: those of opening and running the model.
[[nodiscard]] Result<Texts> write_own_text(native::ModelHeader model,
                                           const session::EngineOptions& options,
                                           const CalibrationText& wanted,
                                           const std::function<void(double share)>& on_progress);

// Windows of a text that lie evenly in it, so many that they have `tokens` or all that there are.
[[nodiscard]] Texts cut_text(const tokenizer::Tokenizer& vocabulary, const std::string& text,
                             size_t tokens, int32_t window);

// Tokens that are drawn evenly, for a model that writes none.
[[nodiscard]] Texts draw_tokens(int64_t n_vocab, const CalibrationText& wanted);

}  // namespace sluice::cli

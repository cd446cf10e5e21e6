// Tokens to measure a model on: windows of a given text, text that the model generates at
// temperature 1, or random tokens. All three are deterministic.
#pragma once

#include <string>
#include <vector>

#include "native/model_file.h"

namespace sluice::measure {

using Texts = std::vector<std::vector<session::Token>>;

struct CalibrationText {
  size_t tokens = 0;   // minimum over all texts together
  int32_t length = 0;  // maximum length of one text, in tokens
  int32_t beside = 1;  // texts that are generated in parallel
};

// Generates texts with the model. `options` are the engine's; contexts and sessions are set here.
// `on_progress` gets the share done, 0 to 1. Errors: those of opening and running the model.
[[nodiscard]] Result<Texts> write_own_text(native::ModelHeader model,
                                           const session::EngineOptions& options,
                                           const CalibrationText& wanted,
                                           const std::function<void(double share)>& on_progress);

// Evenly spaced windows of a text, with `tokens` tokens in total, or fewer if the text is shorter.
[[nodiscard]] Texts cut_text(const tokenizer::Tokenizer& vocabulary, const std::string& text,
                             size_t tokens, int32_t window);

// Uniformly random tokens, for a model that cannot generate text.
[[nodiscard]] Texts draw_tokens(int64_t n_vocab, const CalibrationText& wanted);

}  // namespace sluice::measure

// A prompt with pictures as chunks: text tokens, and inputs of the encoder with their positions.
// Each part of the text is tokenized by itself, since the tokens around a picture never merge with
// it; neighbouring lists of tokens are then joined.
#pragma once

#include <string_view>
#include <vector>

#include "media/plan.h"
#include "tokenizer/literal_spans.h"
#include "tokenizer/tokenizer.h"

namespace sluice::media {

using tokenizer::kMediaMark;  // the next picture, in a prompt
using tokenizer::Token;

// What the layout depends on in the text model.
struct TextModel {
  bool mrope = false;  // positions have time, row and column
  uint64_t n_embd = 0;
  uint64_t media_width = 0;  // values of a picture's token: with deepstack, several embeddings
  [[nodiscard]] static TextModel from(const gguf::Header& header);
};

struct Position {
  uint32_t time = 0, row = 0, column = 0;  // equal for text
};

struct Chunk {
  std::vector<Token> tokens;  // text; empty for a picture
  bool is_image = false;
  uint32_t position = 0;     // of the first token
  uint32_t n_positions = 0;  // used up
  uint32_t n_tokens = 0;
  uint32_t picture = 0, input = 0;  // of the prompt's pictures, of that picture's inputs
  uint32_t columns = 0, rows = 0;   // with M-RoPE; else n_tokens and 1
  bool grid = false;                // M-RoPE: positions follow rows and columns
  bool non_causal = false;          // the tokens see each other in both directions

  [[nodiscard]] Position at(uint32_t token) const;
};

// `pictures`: one plan for each mark in `prompt`. Control tokens in the prompt are parsed unless
// `options` say otherwise; with literal spans, marks inside of one are text. Errors:
// kInvalidArgument (numbers of marks and pictures differ), the tokenizer's, kPromptTooLong (more
// positions than kMaxTextBytes).
[[nodiscard]] Result<std::vector<Chunk>> layout(std::string_view prompt, const Projector& projector,
                                                std::span<const PicturePlan> pictures,
                                                const tokenizer::Tokenizer& tokenizer,
                                                const TextModel& model,
                                                const tokenizer::EncodeOptions& options = {});

}  // namespace sluice::media

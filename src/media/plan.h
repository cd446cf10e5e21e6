// What a picture of a given size becomes, before a pixel is read: the inputs of the encoder, their
// tokens, and the text between them. Sizes alone decide it, so a caller knows the price of a
// picture from its header.
#pragma once

#include <string>
#include <vector>

#include "media/projector.h"

namespace sluice::media {

// Limits of the number of tokens of an input; 0: the projector's own.
struct TokenLimits {
  uint32_t min = 0, max = 0;
};

// A resized copy of the picture, or of the canvas before it. Inputs are cut from canvases.
struct Canvas {
  uint32_t width = 0, height = 0;
  bool stretch = false;      // to the size; else to fit, on the family's background
  bool from_picture = true;  // else from the canvas before
};

// One input of the encoder.
struct EncoderInput {
  uint32_t width = 0, height = 0;     // pixels, multiples of the patch size in all useful cases
  uint32_t canvas = 0, x = 0, y = 0;  // where it is cut
  uint32_t columns = 0, rows = 0;     // of tokens; 0 for a resampler
  uint32_t n_tokens = 0;  // of the projector's output: begin, end and row vectors included
};

// A part of the prompt in the place of a picture: text, or an input where `input` >= 0.
struct Piece {
  std::string text;
  int32_t input = -1;
};

struct PicturePlan {
  uint32_t width = 0, height = 0;  // of the picture
  std::vector<Canvas> canvases;
  std::vector<EncoderInput> inputs;  // in the order of the prompt
  std::vector<Piece> pieces;
  uint32_t n_tokens = 0;  // of all inputs; the text of `pieces` comes on top
  bool tiled = false;     // M-RoPE: positions count up instead of following rows and columns
  uint64_t preprocess_bytes = 0;  // upper bound of the memory of preprocess(), results included
};

// Errors: kInvalidArgument (sizes or limits), kNotSupported (limits for a projector whose number of
// tokens is fixed and outside of them).
[[nodiscard]] Result<PicturePlan> plan_image(const Projector& projector, uint32_t width,
                                             uint32_t height, const TokenLimits& limits = {});

// The largest number of tokens that plan_image() gives one input, for planning memory before any
// picture is known. Errors: plan_image()'s.
[[nodiscard]] Result<uint32_t> max_input_tokens(const Projector& projector,
                                                const TokenLimits& limits = {});

// Parses "MIN:MAX", "MIN:" or ":MAX"; 0 is the projector's own. Errors: kInvalidArgument.
[[nodiscard]] Result<TokenLimits> parse_token_limits(std::string_view text);

}  // namespace sluice::media

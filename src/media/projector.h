// The parameters of a vision projector (an mmproj file, general.architecture = "clip"): what
// decides the size of its inputs, their number of tokens and the tokens around them. A family is a
// row of a table of differences (families.cpp), found by the projector type.
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "gguf/gguf.h"
#include "media/resize.h"

namespace sluice::media {

// How the sizes of a picture's inputs follow from the picture's.
enum class Sizing : uint8_t {
  kFixed,        // image_size x image_size
  kFree,         // the picture's own, in whole tokens, between two numbers of tokens
  kLongestSide,  // the longer side is preproc_image_size
  kPinpoints,    // tiles of the best of image_grid_pinpoints, and an overview
  kGrids,        // the same with every grid of preproc_min_tiles to preproc_max_tiles tiles
  kIdefics,      // longer side preproc_image_size, then tiles of image_size, and an overview
  kLfm2,         // kFree; large pictures: tiles of 512 pixels and a kFree thumbnail
  kMinicpm,      // slices of about image_size^2 pixels, and an overview
};

// A row: what tells a projector type from the others. kFamilies in families.cpp.
struct Family {
  const char* type;  // clip.projector_type
  Sizing sizing = Sizing::kFixed;
  Filter filter = Filter::kBicubic;
  std::array<uint8_t, 3> background{0, 0, 0};
  uint8_t merge = 1;                        // patches a side of a token; 0: the key must be there
  const char* merge_key = "";               // below clip.vision., overrides `merge`
  uint16_t min_tokens = 0, max_tokens = 0;  // of sizes that follow the picture
  uint8_t extra_tokens = 0;                 // begin and end vectors
  bool non_causal = false;  // the tokens of an input see each other in both directions
  const char* before = "";  // text around a picture
  const char* after = "";
};

struct Projector {
  const Family* family = nullptr;
  Sizing sizing = Sizing::kFixed;       // the family's, or kPinpoints where these are listed
  std::array<uint8_t, 3> background{};  // around a picture that is fitted
  uint32_t image_size = 0, patch_size = 0, merge = 1;
  uint32_t n_embd = 0;  // of the encoder
  uint32_t n_layers = 0, n_heads = 0;
  uint32_t projection_dim = 0;  // not the output's width in every family
  float norm_epsilon = 0;
  std::array<float, 3> mean{}, deviation{1, 1, 1};
  uint32_t longest_side = 0;                             // kLongestSide, kIdefics
  uint32_t min_tiles = 1, max_tiles = 12;                // kGrids
  std::vector<std::pair<uint32_t, uint32_t>> pinpoints;  // width, height
  uint64_t min_pixels = 0, max_pixels = 0;               // kFree, kLfm2: of an input
  uint32_t n_queries = 0;                                // > 0: tokens of every input
  uint32_t minicpmv_version = 0;
  bool row_breaks = false;  // a vector of the projector follows each row of tokens but the last
  bool has_audio = false;   // it also has a sound encoder

  // Side of a token in pixels.
  [[nodiscard]] uint32_t token_side() const { return patch_size * merge; }
};

// Caps for untrusted headers and limits.
inline constexpr uint32_t kMaxInputTiles = 256;        // inputs of one picture
inline constexpr uint32_t kMaxImageTokens = 1u << 16;  // of one input
inline constexpr uint32_t kLfm2Tile = 512;             // side of a tile in pixels

// Errors: kNotSupported (no vision encoder), kUnsupportedArchitecture (not a projector, or its type
// is unknown, named), kBadHeader (a key that is missing or impossible, named).
[[nodiscard]] Result<Projector> read_projector(const gguf::Header& header);

// The family of a projector type; null: unknown.
[[nodiscard]] const Family* find_family(std::string_view type);

}  // namespace sluice::media

// The table of projector types: sizes, resizing and surroundings of their pictures. Sizes and marks
// are llama.cpp's (tools/mtmd), which every published projector file was tested with.
#include "media/projector.h"

namespace sluice::media {
namespace {

constexpr const char* kScale = "projector.scale_factor";
constexpr const char* kSpatial = "spatial_merge_size";
constexpr std::array<uint8_t, 3> kClipMean{122, 116, 104}, kGrey{127, 127, 127};
constexpr const char* kVisionStart = "<|vision_start|>";
constexpr const char* kVisionEnd = "<|vision_end|>";

constexpr Family qwen(const char* type) {
  return {.type = type,
          .sizing = Sizing::kFree,
          .merge = 2,
          .min_tokens = 8,
          .max_tokens = 4096,
          .before = kVisionStart,
          .after = kVisionEnd};
}
constexpr Family gemma4(const char* type) {
  return {.type = type,
          .sizing = Sizing::kFree,
          .merge = 3,
          .min_tokens = 70,
          .max_tokens = 1120,
          .non_causal = true,
          .before = "<|image>",
          .after = "<image|>"};
}

constexpr Family kFamilies[] = {
    qwen("qwen2vl_merger"),
    qwen("qwen2.5vl_merger"),
    qwen("qwen2.5o"),
    qwen("qwen3vl_merger"),
    {.type = "glm4v",
     .sizing = Sizing::kFree,
     .merge = 2,
     .min_tokens = 8,
     .max_tokens = 4096,
     .before = "<|begin_of_image|>",
     .after = "<|end_of_image|>"},
    gemma4("gemma4v"),
    gemma4("gemma4uv"),
    {.type = "pixtral",
     .sizing = Sizing::kFree,
     .merge_key = kSpatial,
     .min_tokens = 8,
     .max_tokens = 1024,
     .after = "[IMG_END]"},
    {.type = "kimivl",
     .sizing = Sizing::kFree,
     .merge = 0,
     .merge_key = kScale,
     .min_tokens = 8,
     .max_tokens = 1024,
     .before = "<|media_start|>",
     .after = "<|media_end|>"},
    {.type = "lightonocr",
     .sizing = Sizing::kLongestSide,
     .merge_key = kSpatial,
     .before = "<|im_start|>",
     .after = "<|im_end|>"},
    {.type = "paddleocr",
     .sizing = Sizing::kFree,
     .merge = 2,
     .before = "<|IMAGE_START|>",
     .after = "<|IMAGE_END|>"},
    {.type = "gemma3",
     .filter = Filter::kBilinear,
     .merge = 4,
     .merge_key = kScale,
     .non_causal = true,
     .before = "<start_of_image>",
     .after = "<end_of_image>"},
    {.type = "janus_pro", .background = kGrey},
    {.type = "adapter", .merge = 2, .extra_tokens = 2},
    {.type = "mlp", .background = kClipMean},
    {.type = "cogvlm", .background = kClipMean, .extra_tokens = 2},
    {.type = "internvl",
     .sizing = Sizing::kGrids,
     .merge = 0,
     .merge_key = kScale,
     .before = "<img>",
     .after = "</img>"},
    {.type = "idefics3",
     .sizing = Sizing::kIdefics,
     .filter = Filter::kLanczos,
     .merge = 0,
     .merge_key = kScale},
    {.type = "lfm2",
     .sizing = Sizing::kLfm2,
     .filter = Filter::kBilinear,
     .merge = 0,
     .merge_key = kScale,
     .min_tokens = 64,
     .max_tokens = 256,
     .before = "<|image_start|>",
     .after = "<|image_end|>"},
    {.type = "resampler", .sizing = Sizing::kMinicpm},
    {.type = "minicpmv4_6", .sizing = Sizing::kMinicpm, .merge = 0, .merge_key = kScale},
};

}  // namespace

const Family* find_family(std::string_view type) {
  for (const Family& family : kFamilies) {
    if (type == family.type) return &family;
  }
  return nullptr;
}

}  // namespace sluice::media

// Fuzzes pictures: four bytes choose a projector, limits of its tokens and the decode mode, the
// rest is the file. Accepted pictures go through preprocessing, which must make what was planned. A
// file that begins with "GGUF" is read as a projector, and its plans are compared with its
// announced maximum.
#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "media/decode.h"
#include "media/preprocess.h"

namespace {

using sluice::media::Bytes;

// One for each row of kFamilies that prepares pictures in its own way.
constexpr const char* kTypes[] = {
    "qwen2vl_merger", "pixtral",  "gemma4v", "lightonocr", "paddleocr", "gemma3",
    "internvl",       "idefics3", "lfm2",    "mlp",        "resampler", "minicpmv4_6",
    "glm4v",          "gemma4uv", "kimivl",  "janus_pro",  "adapter",   "cogvlm"};

sluice::media::Projector choose(const uint8_t* parameters) {
  sluice::media::Projector out;
  const std::string_view type = kTypes[parameters[0] % std::size(kTypes)];
  out.family = sluice::media::find_family(type);
  if (out.family == nullptr) std::abort();
  out.sizing = out.family->sizing;
  out.background = out.family->background;
  out.patch_size = 8;
  out.merge = std::max<uint32_t>(out.family->merge, 1 + parameters[1] % 2);
  out.image_size = 64;
  out.longest_side = 100;
  out.max_tiles = 6;
  out.minicpmv_version = parameters[1] % 8;
  if (type == "resampler") out.n_queries = 64;
  if (type == "mlp" && parameters[1] % 4 > 1) {
    out.sizing = sluice::media::Sizing::kPinpoints;
    out.pinpoints = {{64, 128}, {128, 64}, {128, 128}, {192, 64}};
  }
  const uint64_t token = uint64_t{out.token_side()} * out.token_side();
  out.min_pixels = 4 * token;
  out.max_pixels = (4 + parameters[2]) * token;
  return out;
}

void require(bool holds) {
  if (!holds) std::abort();
}

void try_plan(const sluice::media::Projector& projector, uint32_t width, uint32_t height,
              const sluice::media::TokenLimits& limits = {}) {
  const auto plan = sluice::media::plan_image(projector, width, height, limits);
  const auto most = sluice::media::max_input_tokens(projector, limits);
  require(plan.ok() ? most.ok() && !plan->inputs.empty() : !plan.status().message().empty());
  if (!plan.ok()) return;
  for (const auto& input : plan->inputs) {
    const auto& canvas = plan->canvases[input.canvas];
    require(input.n_tokens <= *most);
    require(input.x + input.width <= canvas.width && input.y + input.height <= canvas.height);
  }
}

void try_projector(Bytes file) {
  sluice::gguf::Header header;
  const auto parsed = sluice::gguf::parse_header(file, file.size(), &header);
  if (!parsed.ok() || !parsed->done) return;
  const auto projector = sluice::media::read_projector(header);
  if (!projector.ok()) return require(!projector.status().message().empty());
  for (const uint32_t width : {1u, 57u, 1024u, 65535u}) {
    for (const uint32_t height : {1u, 300u, 1023u}) try_plan(*projector, width, height);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 4) return 0;
  const Bytes file(data + 4, size - 4);
  if (std::equal(data, data + 4, "GGUF")) {
    try_projector({data, size});
    return 0;
  }
  const auto mode = data[3] % 2 == 0 ? sluice::media::DecodeMode::kUpright
                                     : sluice::media::DecodeMode::kReference;
  const sluice::media::DecodeOptions options{mode, 1u << 18};
  const auto info = sluice::media::image_info(file, options);
  const auto image = sluice::media::decode(file, options);
  if (!image.ok()) {
    require(!image.status().message().empty());
    return 0;
  }
  require(info.ok() && info->width == image->width && info->height == image->height);
  const sluice::media::Projector projector = choose(data);
  const sluice::media::TokenLimits limits{data[1] / 16u, data[1] / 64u * data[2]};
  try_plan(projector, image->width, image->height, limits);
  const auto plan = sluice::media::plan_image(projector, image->width, image->height, limits);
  if (!plan.ok()) return 0;
  const auto inputs = sluice::media::preprocess(projector, *plan, *image);
  require(inputs.ok() && inputs->size() == plan->inputs.size());
  for (size_t i = 0; i < inputs->size(); ++i) {
    const auto& planned = plan->inputs[i];
    const sluice::media::Image& input = (*inputs)[i];
    require(input.width == planned.width && input.height == planned.height);
    std::vector<float> values(input.size());
    sluice::media::normalize(projector, input, values);
  }
  return 0;
}

#include "media/preprocess.h"

#include <utility>

namespace sluice::media {

Result<std::vector<Image>> preprocess(const Projector& projector, const PicturePlan& plan,
                                      const Image& image) {
  if (image.width != plan.width || image.height != plan.height) {
    return error(Code::kInvalidArgument, "the picture has %u x %u pixels, but %u x %u were planned",
                 image.width, image.height, plan.width, plan.height);
  }
  const Filter filter = projector.family->filter;
  std::vector<Image> out(plan.inputs.size());
  Image canvas;
  for (uint32_t i = 0; i < plan.canvases.size(); ++i) {
    const Canvas& wanted = plan.canvases[i];
    const Image& from = wanted.from_picture ? image : canvas;
    Result<Image> made = wanted.stretch ? resize(from, wanted.width, wanted.height, filter)
                                        : resize_to_fit(from, wanted.width, wanted.height, filter,
                                                        projector.background.data());
    if (!made.ok()) return made.status();
    canvas = std::move(*made);
    for (size_t k = 0; k < plan.inputs.size(); ++k) {
      const EncoderInput& input = plan.inputs[k];
      if (input.canvas != i) continue;
      Result<Image> part = crop(canvas, input.x, input.y, input.width, input.height);
      if (!part.ok()) return part.status();
      out[k] = std::move(*part);
    }
  }
  return out;
}

void normalize(const Projector& projector, const Image& input, std::span<float> out) {
  const uint8_t* bytes = input.row(0);
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t channel = i % 3;
    out[i] = (static_cast<float>(bytes[i]) / 255.0f - projector.mean[channel]) /
             projector.deviation[channel];
  }
}

}  // namespace sluice::media

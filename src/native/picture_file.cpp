#include "native/picture_file.h"

#include <cstring>

namespace sluice::native {

Result<std::unique_ptr<PictureFile>> PictureFile::open(ModelHeader projector,
                                                       const gguf::Header& model,
                                                       const media::TokenLimits& limits,
                                                       const char* kernels) {
  std::unique_ptr<PictureFile> out(new PictureFile);
  out->projector_ = std::move(projector);
  auto pictures = multimodal::Pictures::open(out->projector_.header, media::TextModel::from(model),
                                             limits, kernels);
  if (!pictures.ok()) return pictures.status();
  out->pictures_ = std::move(*pictures);
  return out;
}

Status PictureFile::adapt(session::EngineOptions* options) const {
  options->base_bytes += projector_.held;
  return pictures_->adapt(options);
}

void PictureFile::attach(Model& model) {
  model_ = &model;
  pictures_->attach(model.engine().context(), model.engine().replanner());
  model.take_projector(&projector_);
}

PictureFile::~PictureFile() {
  if (model_ != nullptr) model_->take_projector(nullptr);
}

Status PictureFile::add_file(media::Bytes file, const media::DecodeOptions& options) {
  SLUICE_RETURN_IF_ERROR(model_->end_reads());
  const Status added = pictures_->add_file(file, options);
  return added.ok() ? added : give_up(added);
}

Status PictureFile::add_pixels(media::Bytes rgb, uint32_t width, uint32_t height) {
  SLUICE_RETURN_IF_ERROR(model_->end_reads());
  const auto add = [&]() -> Status {
    SLUICE_RETURN_IF_ERROR(media::check_size(width, height));
    if (rgb.size() != 3ull * width * height) {
      return error(Code::kInvalidArgument, "a picture of %u x %u pixels has %llu bytes, not %zu",
                   width, height, 3ull * width * height, rgb.size());
    }
    SLUICE_RETURN_IF_ERROR(pictures_->make_room(width, height));
    Result<media::Image> image = media::Image::create(width, height);
    if (!image.ok()) return image.status();
    std::memcpy(image->row(0), rgb.data(), rgb.size());
    return pictures_->add(std::move(*image));
  };
  const Status added = add();
  return added.ok() ? added : give_up(added);
}

Result<std::vector<session::Token>> PictureFile::layout(std::string_view prompt,
                                                        const tokenizer::EncodeOptions& options) {
  Result<std::vector<session::Token>> tokens = pictures_->layout(prompt, options);
  if (!tokens.ok()) return give_up(tokens.status());
  return tokens;
}

Status PictureFile::encode(session::Session& session, std::span<const session::Token> prompt,
                           generate::Options* options, const std::function<bool()>& cancelled) {
  SLUICE_RETURN_IF_ERROR(model_->end_reads());
  Status status = pictures_->begin(session, prompt, options->reuse_prefix);
  vision::EncoderFills fills;
  if (status.ok()) status = encode_all(cancelled, fills);
  if (!status.ok()) return give_up(status);
  options->media = pictures_->media();
  return status;
}

// A read that failed is not going on, so the encoder can end.
Status PictureFile::give_up(const Status& why) {
  static_cast<void>(end());
  return why;
}

Status PictureFile::encode_all(const std::function<bool()>& cancelled,
                               vision::EncoderFills& fills) {
  for (;;) {
    if (cancelled && cancelled()) return error(Code::kAborted, "encoding was cancelled");
    switch (pictures_->step()) {
      case vision::Step::kDone:
        return pictures_->close_encoder();
      case vision::Step::kFailed:
        return pictures_->status();
      case vision::Step::kBlocked:
        SLUICE_RETURN_IF_ERROR(
            fills.run(*pictures_->queue(), projector_.sources, model_->engine().pool()));
        break;
      case vision::Step::kProgress:
        break;
    }
  }
}

Status PictureFile::end() {
  SLUICE_RETURN_IF_ERROR(model_->end_reads());
  return pictures_->end();
}

}  // namespace sluice::native

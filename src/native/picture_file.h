// The native driver of pictures: opens a projector's file and reads its weights.
#pragma once

#include <functional>
#include <memory>

#include "multimodal/pictures.h"
#include "native/model_file.h"
#include "vision/encoder_file_native.h"

namespace sluice::native {

class PictureFile {
 public:
  ~PictureFile();
  PictureFile(const PictureFile&) = delete;
  PictureFile& operator=(const PictureFile&) = delete;
  // `model`: the text model's header. Errors: Pictures::open's.
  [[nodiscard]] static Result<std::unique_ptr<PictureFile>> open(
      ModelHeader projector, const gguf::Header& model, const media::TokenLimits& limits = {},
      const char* kernels = "");
  // Adapts the options of a text model that takes pictures. Errors: Pictures::adapt's.
  [[nodiscard]] Status adapt(session::EngineOptions* options) const;
  // `model` must outlive this object.
  void attach(Model& model);

  [[nodiscard]] const multimodal::Pictures& pictures() const { return *pictures_; }
  // A prompt: end(), then one of these for each picture, then layout(). A failed call ends it.
  // Errors: Pictures::add_file's and make_room's, those of the model's sources.
  [[nodiscard]] Status add_file(media::Bytes file, const media::DecodeOptions& options);
  // `rgb`: [height][width][3]. Errors: also kInvalidArgument (another number of bytes).
  [[nodiscard]] Status add_pixels(media::Bytes rgb, uint32_t width, uint32_t height);
  // The prompt's tokens, with a media::kMediaMark for each picture. Errors: Pictures::layout's.
  [[nodiscard]] Result<std::vector<session::Token>> layout(std::string_view prompt,
                                                           const tokenizer::EncodeOptions& options);
  // Rewinds the session to what it holds of the prompt: whether that has all pictures, so that a
  // generation needs no others.
  [[nodiscard]] bool held_by(session::Session& session,
                             std::span<const session::Token> prompt) const {
    return pictures_->held_by(session.keep(prompt));
  }
  // Encodes the pictures of the prompt that the session does not hold, unless they are encoded, and
  // sets them in `options` of the generation that follows. `cancelled` is asked between units of
  // work. Errors: Pictures::begin's, status(); kAborted; those of the sources.
  [[nodiscard]] Status encode(session::Session& session, std::span<const session::Token> prompt,
                              generate::Options* options,
                              const std::function<bool()>& cancelled = nullptr);
  // Forgets the prompt's pictures. Errors: those of the model's sources, Pictures::end's.
  [[nodiscard]] Status end();

 private:
  PictureFile() = default;
  Status give_up(const Status& why);
  [[nodiscard]] Status encode_all(const std::function<bool()>& cancelled,
                                  vision::EncoderFills& fills);

  ModelHeader projector_;
  std::unique_ptr<multimodal::Pictures> pictures_;
  Model* model_ = nullptr;
};

}  // namespace sluice::native

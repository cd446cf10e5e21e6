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
  // `model`: the text model's header. Errors: Pictures::open's.
  [[nodiscard]] static Result<std::unique_ptr<PictureFile>> open(
      ModelHeader projector, const gguf::Header& model, const media::TokenLimits& limits = {},
      const char* kernels = "");
  // Adapts the options of a text model that takes pictures. Errors: Pictures::adapt's.
  [[nodiscard]] Status adapt(session::EngineOptions* options) const;
  // `model` must outlive this object.
  void attach(Model& model);

  [[nodiscard]] const multimodal::Pictures& pictures() const { return *pictures_; }
  // Reads a prompt with a media::kMediaMark for each of these pictures, which are released.
  // Errors: Pictures::add's and layout's, those of the model's sources.
  [[nodiscard]] Result<std::vector<session::Token>> read(std::string_view prompt,
                                                         std::vector<media::Image> images,
                                                         const tokenizer::EncodeOptions& options);
  // Encodes the pictures of the prompt that the session does not hold, and sets them in `options`
  // of the generation that follows. `cancelled` is asked between units of work. Errors:
  // Pictures::begin's, status(); kAborted; those of the sources.
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

#include "cli/pictures.h"

#include "native/hugging_face.h"

namespace sluice::cli {

Result<media::TokenLimits> ImageReading::limits() const {
  if (image_tokens.empty()) return media::TokenLimits{};
  return media::parse_token_limits(image_tokens);
}

Result<media::DecodeOptions> ImageReading::decoding() const {
  const Result<media::DecodeMode> mode = media::parse_decode_mode(image_decode);
  if (!mode.ok()) return mode.status();
  media::DecodeOptions out;
  out.mode = *mode;
  return out;
}

void add_image_reading(CLI::App& app, ImageReading& reading) {
  app.add_option("--image-tokens", reading.image_tokens,
                 "MIN:MAX, the tokens of a picture (default: the projector's)");
  app.add_option("--image-decode", reading.image_decode,
                 "upright (as viewers show files) or reference (as llama.cpp reads them: without "
                 "EXIF rotation, alpha dropped) (default: " +
                     reading.image_decode + ")");
}

void add_pictures(CLI::App& app, PictureOptions& options, bool with_images) {
  app.add_option("--projector,--mmproj", options.projector,
                 "the model's vision projector: an mmproj GGUF file, or URL of one; off: none "
                 "(default: mmproj*.gguf beside the model)");
  if (with_images) {
    app.add_option(
           "--image", options.images,
           "picture for the prompt: PNG, JPEG, WebP, BMP or GIF file; may be repeated; each "
           "<__media__> in the prompt is the next one, others come first (default: none)")
        ->allow_extra_args(false);
  }
  add_image_reading(app, options);
}

Status no_pictures() {
  return error(Code::kNotSupported,
               "the model takes no pictures: there is no projector (mmproj*.gguf) beside it; name "
               "one with --projector");
}

Result<std::unique_ptr<native::PictureFile>> open_pictures(const PictureOptions& options,
                                                           const std::string& model, bool needed,
                                                           native::LoadOptions* load) {
  const Result<media::TokenLimits> limits = options.limits();
  if (!limits.ok()) return limits.status();
  if (const Result<media::DecodeOptions> mode = options.decoding(); !mode.ok()) {
    return mode.status();
  }
  const bool given = !options.projector.empty();
  const std::string projector =
      given ? options.projector : native::projector_source(model, load->source);
  if (projector.empty() || projector == "off") {
    if (needed && given) {
      return error(Code::kNotSupported, "the model takes no pictures: --projector is off");
    }
    if (needed) return no_pictures();
    return std::unique_ptr<native::PictureFile>();
  }
  auto out = native::open_projector(projector, model, load, *limits);
  if (out.ok() || given || needed) return out;
  print_warning(projector + " is not used: " + out.status().message());
  return std::unique_ptr<native::PictureFile>();
}

Result<std::vector<session::Token>> read_prompt(
    native::PictureFile& pictures, std::string_view prompt, std::span<const std::string> files,
    const PictureOptions& options, const tokenizer::EncodeOptions& encoding, PictureFiles* shown) {
  const Result<media::DecodeOptions> decoding = options.decoding();
  if (!decoding.ok()) return decoding.status();
  SLUICE_RETURN_IF_ERROR(pictures.end());
  for (const std::string& file : files) {
    PictureFiles own;
    PictureFiles& known = shown != nullptr ? *shown : own;
    if (!known.contains(file)) {
      Result<std::vector<uint8_t>> bytes = native::read_picture_file(file);
      if (!bytes.ok()) return bytes.status();
      known[file] = std::move(*bytes);
    }
    const Status added = pictures.add_file(known[file], *decoding);
    if (added.ok()) continue;
    return error(added.code(), "%.256s: %s", file.c_str(), added.message().c_str());
  }
  return pictures.layout(prompt, encoding);
}

Result<std::vector<session::Token>> tokens_of(const chat::Prompt& prompt,
                                              const tokenizer::Tokenizer& tokenizer,
                                              native::PictureFile* pictures,
                                              const PictureOptions& options, PictureFiles* shown) {
  if (prompt.pictures.empty()) return chat::encode(tokenizer, prompt);
  return read_prompt(*pictures, marked_text(prompt), prompt.pictures, options,
                     {.add_special = prompt.add_special, .literal_spans = true}, shown);
}

}  // namespace sluice::cli

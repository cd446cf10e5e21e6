#include "cli/media_prompt.h"

#include "native/picture_source.h"

namespace sluice::cli {
namespace {

Status read_images(const MediaOptions& options, MediaPrompt* out) {
  const Result<media::DecodeOptions> decoding = options.decoding();
  if (!decoding.ok()) return decoding.status();
  const Result<media::TokenLimits> limits = options.limits();
  if (!limits.ok()) return limits.status();
  for (const std::string& path : options.images) {
    const auto named = [&path](const Status& status) {
      return error(status.code(), "%.256s: %s", path.c_str(), status.message().c_str());
    };
    Result<media::Image> image = native::read_picture(path, *decoding);
    if (!image.ok()) return image.status();
    Result<media::PicturePlan> plan =
        media::plan_image(out->projector, image->width, image->height, *limits);
    if (!plan.ok()) return named(plan.status());
    out->images.push_back(std::move(*image));
    out->plans.push_back(std::move(*plan));
  }
  return {};
}

}  // namespace

void add_media(CLI::App& app, MediaOptions& options, bool required) {
  const std::string none = required ? "" : " (default: none)";
  CLI::Option* projector =
      app.add_option("--projector", options.projector,
                     "the model's vision projector: an mmproj GGUF file, or URL of one" + none);
  CLI::Option* prompt =
      app.add_option("--prompt-file", options.prompt_file,
                     "file with the prompt, in which each <__media__> is the next picture; - reads "
                     "standard input" +
                         none);
  if (required) {
    projector->required();
    prompt->required();
  } else {
    projector->needs(prompt);
    prompt->needs(projector);
  }
  app.add_option("--image", options.images,
                 "PNG, JPEG, WebP, BMP or GIF file; may be repeated (default: none)")
      ->allow_extra_args(false);
  app.add_option("--audio", options.audio, "sound is not supported yet (default: none)")
      ->allow_extra_args(false);
  add_image_reading(app, options);
}

Result<MediaPrompt> read_media_prompt(const Common& common, const MediaOptions& options) {
  if (!options.audio.empty()) return error(Code::kNotSupported, "--audio: sound is not supported");
  Result<std::string> prompt = read_text(options.prompt_file);
  if (!prompt.ok()) return prompt.status();
  Result<io::OpenOptions> source = source_options(common.cache_dir, common.hosts, common.model);
  if (!source.ok()) return source.status();
  MediaPrompt out;
  Result<native::ModelHeader> model = native::read_header(common.model, *source);
  if (!model.ok()) return model.status();
  out.model = std::move(*model);
  Result<native::ModelHeader> file = native::read_projector_header(options.projector, *source);
  if (!file.ok()) return file.status();
  out.projector_file = std::move(*file);
  Result<media::Projector> projector = media::read_projector(out.projector_file.header);
  if (!projector.ok()) return projector.status();
  out.projector = std::move(*projector);
  SLUICE_RETURN_IF_ERROR(read_images(options, &out));
  auto tokenizer = tokenizer::Tokenizer::create(out.model.header);
  if (!tokenizer.ok()) return tokenizer.status();
  Result<std::vector<media::Chunk>> chunks = media::layout(
      *prompt, out.projector, out.plans, **tokenizer, media::TextModel::from(out.model.header));
  if (!chunks.ok()) return chunks.status();
  out.chunks = std::move(*chunks);
  return out;
}

Status encode_pictures(MediaPrompt* prompt, const native::LoadOptions& load, const TakeRows& take) {
  vision::EncoderOptions encoding;
  encoding.memory_budget = load.engine.memory_budget;
  encoding.base_bytes = prompt->projector_file.held + load.engine.base_bytes;
  encoding.kernels = load.engine.kernels;
  Result<std::unique_ptr<vision::EncoderFile>> encoder = vision::EncoderFile::open(
      prompt->projector_file.header, std::move(prompt->projector_file.sources), encoding,
      load.engine.n_threads);
  if (!encoder.ok()) return encoder.status();
  const uint64_t width = media::TextModel::from(prompt->model.header).media_width;
  if (width > 0) SLUICE_RETURN_IF_ERROR((*encoder)->encoder().check_fits(width));
  std::vector<float> rows;
  std::vector<media::Image> inputs;  // of one picture
  uint32_t picture = UINT32_MAX;
  for (const media::Chunk& chunk : prompt->chunks) {
    if (!chunk.is_image) continue;
    if (chunk.picture != picture) {
      picture = chunk.picture;
      inputs.clear();
      Result<std::vector<media::Image>> made =
          media::preprocess(prompt->projector, prompt->plans[picture], prompt->images[picture]);
      if (!made.ok()) return made.status();
      inputs = std::move(*made);
    }
    rows.resize(size_t{chunk.n_tokens} * (*encoder)->encoder().width());
    SLUICE_RETURN_IF_ERROR((*encoder)->encode(inputs[chunk.input], rows));
    SLUICE_RETURN_IF_ERROR(take(chunk, inputs[chunk.input], rows));
  }
  return {};
}

}  // namespace sluice::cli

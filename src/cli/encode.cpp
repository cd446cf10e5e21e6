// `sluice encode`: what a projector makes of the pictures of a prompt, for scripts and tests.
#include <nlohmann/json.hpp>

#include "cli/atomic_file.h"
#include "cli/media_prompt.h"
#include "vision/encoder_file_native.h"

namespace sluice::cli {
namespace {

struct EncodeOptions {
  Common common;
  MediaOptions media;
  std::string out;
};

// Encodes the inputs of all pictures, in the order of the prompt, and writes their tokens.
Status encode_inputs(const MediaPrompt& prompt, vision::EncoderFile& encoder, AtomicFile* file,
                     uint64_t* tokens) {
  std::vector<float> out;
  std::vector<media::Image> inputs;  // of one picture
  uint32_t picture = UINT32_MAX;
  for (const media::Chunk& chunk : prompt.chunks) {
    if (!chunk.is_image) continue;
    if (chunk.picture != picture) {
      picture = chunk.picture;
      inputs.clear();
      Result<std::vector<media::Image>> made =
          media::preprocess(prompt.projector, prompt.plans[picture], prompt.images[picture]);
      if (!made.ok()) return made.status();
      inputs = std::move(*made);
    }
    out.resize(size_t{chunk.n_tokens} * encoder.encoder().width());
    SLUICE_RETURN_IF_ERROR(encoder.encode(inputs[chunk.input], out));
    file->write(out.data(), out.size() * sizeof(float));
    *tokens += chunk.n_tokens;
  }
  return {};
}

// The output must fit the text model, whose width it has once, or several times with deepstack.
Status check_width(const MediaPrompt& prompt, const vision::Encoder& encoder) {
  const uint64_t n_embd = media::TextModel::from(prompt.model.header).n_embd;
  if (n_embd == 0 || encoder.width() % n_embd == 0) return {};
  return error(Code::kBadShape,
               "the projector's tokens have %u values, but the model's embeddings have %llu: it "
               "belongs to another model",
               encoder.width(), static_cast<unsigned long long>(n_embd));
}

int encode(const EncodeOptions& options) {
  Result<native::LoadOptions> load = load_options(options.common);
  if (!load.ok()) return fail(load.status());
  Result<MediaPrompt> prompt = read_media_prompt(options.common, options.media);
  if (!prompt.ok()) return fail(prompt.status());
  vision::EncoderOptions encoding;
  encoding.memory_budget = load->engine.memory_budget;
  encoding.base_bytes = prompt->projector_file.held;
  encoding.kernels = load->engine.kernels;
  Result<std::unique_ptr<vision::EncoderFile>> encoder = vision::EncoderFile::open(
      prompt->projector_file.header, std::move(prompt->projector_file.sources), encoding,
      load->engine.n_threads);
  if (!encoder.ok()) return fail(encoder.status());
  if (const Status fits = check_width(*prompt, (*encoder)->encoder()); !fits.ok()) {
    return fail(fits);
  }
  Result<AtomicFile> file = AtomicFile::create(options.out, options.media.projector);
  if (!file.ok()) return fail(file.status());
  uint64_t tokens = 0;
  Status status = encode_inputs(*prompt, **encoder, &*file, &tokens);
  if (status.ok()) status = file->finish();
  if (!status.ok()) return fail(status);
  print_json(
      {{"tokens", tokens}, {"dimensions", (*encoder)->encoder().width()}, {"out", options.out}});
  return 0;
}

}  // namespace

void add_encode(CLI::App& app, int* status) {
  auto options = std::make_shared<EncodeOptions>();
  CLI::App* sub = add_command(app, kInspect, "encode", "Write the embeddings of pictures",
                              "sluice encode model.gguf --projector mmproj.gguf --prompt-file "
                              "p.txt --image a.png --out pictures.f32");
  add_common(*sub, options->common);
  add_media(*sub, options->media);
  sub->add_option("--out", options->out, "output file: little-endian f32, [tokens x dimensions]")
      ->required();
  sub->callback([options, status] {
    const EndsAtSignals watch;
    *status = encode(*options);
  });
}

}  // namespace sluice::cli

// `sluice encode`: what a projector makes of the pictures of a prompt, for scripts and tests.
#include <nlohmann/json.hpp>

#include "cli/atomic_file.h"
#include "cli/media_prompt.h"

namespace sluice::cli {
namespace {

struct EncodeOptions {
  Common common;
  MediaOptions media;
  std::string out;
};

int encode(const EncodeOptions& options) {
  Result<native::LoadOptions> load = load_options(options.common);
  if (!load.ok()) return fail(load.status());
  Result<MediaPrompt> prompt = read_media_prompt(options.common, options.media);
  if (!prompt.ok()) return fail(prompt.status());
  Result<AtomicFile> file = AtomicFile::create(options.out, options.media.projector);
  if (!file.ok()) return fail(file.status());
  uint64_t tokens = 0, width = 0;
  Status status = encode_pictures(
      &*prompt, *load,
      [&](const media::Chunk& chunk, const media::Image&, const std::vector<float>& rows) {
        file->write(rows.data(), rows.size() * sizeof(float));
        tokens += chunk.n_tokens;
        width = rows.size() / chunk.n_tokens;
        return Status();
      });
  if (status.ok()) status = file->finish();
  if (!status.ok()) return fail(status);
  print_json({{"tokens", tokens}, {"dimensions", width}, {"out", options.out}});
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

// `sluice layout`: the chunks of a prompt with pictures, their tokens and positions.
#include <nlohmann/json.hpp>

#include "cli/media_prompt.h"

namespace sluice::cli {
namespace {

struct LayoutOptions {
  Common common;
  MediaOptions media;
};

int print_layout(const LayoutOptions& options) {
  Result<MediaPrompt> prompt = read_media_prompt(options.common, options.media);
  if (!prompt.ok()) return fail(prompt.status());
  nlohmann::json chunks = nlohmann::json::array();
  for (const media::Chunk& chunk : prompt->chunks) {
    nlohmann::json entry = {{"type", chunk.is_image ? "image" : "text"},
                            {"position", chunk.position},
                            {"positions", chunk.n_positions}};
    if (chunk.is_image) {
      entry["tokens"] = chunk.n_tokens;
    } else {
      entry["tokens"] = chunk.tokens;
    }
    chunks.push_back(std::move(entry));
  }
  print_json({{"chunks", std::move(chunks)}});
  return 0;
}

}  // namespace

void add_layout(CLI::App& app, int* status) {
  auto options = std::make_shared<LayoutOptions>();
  CLI::App* sub = add_command(
      app, kInspect, "layout", "Print the tokens of a prompt with pictures",
      "sluice layout model.gguf --projector mmproj.gguf --prompt-file p.txt --image a.png");
  add_common(*sub, options->common);
  add_media(*sub, options->media);
  sub->callback([options, status] { *status = print_layout(*options); });
}

}  // namespace sluice::cli

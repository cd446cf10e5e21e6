// A prompt with pictures, for the commands that show what a model makes of them. Each <__media__>
// in the prompt is the next --image.
#pragma once

#include <string>
#include <vector>

#include "cli/cli.h"
#include "media/decode.h"
#include "media/preprocess.h"
#include "media/prompt.h"

namespace sluice::cli {

struct MediaOptions {
  std::string projector, prompt_file;
  std::vector<std::string> images, audio;
  std::string image_tokens;                // "64:1024"
  std::string image_decode = "reference";  // these commands compare with llama.cpp
};

// Adds --projector, --prompt-file, --image, --audio, --image-tokens and --image-decode.
void add_media(CLI::App& app, MediaOptions& options);

struct MediaPrompt {
  native::ModelHeader model, projector_file;  // own what the rest points into
  media::Projector projector;
  std::vector<media::Image> images;
  std::vector<media::PicturePlan> plans;  // of `images`
  std::vector<media::Chunk> chunks;
};

// Reads the headers, the prompt and the pictures. Errors: kNotSupported (sound), those of the
// files, of decoding and of the layout.
[[nodiscard]] Result<MediaPrompt> read_media_prompt(const Common& common,
                                                    const MediaOptions& options);

}  // namespace sluice::cli

// A prompt with pictures, for the commands that show what a model makes of them. Each <__media__>
// in the prompt is the next --image.
#pragma once

#include <string>
#include <vector>

#include "cli/cli.h"
#include "cli/pictures.h"
#include "media/decode.h"
#include "media/preprocess.h"
#include "media/prompt.h"
#include "vision/encoder_file_native.h"

namespace sluice::cli {

struct MediaOptions : ImageReading {
  MediaOptions() { image_decode = "reference"; }  // these commands compare with llama.cpp
  std::string projector, prompt_file;
  std::vector<std::string> images, audio;
};

// Adds --projector, --prompt-file, --image, --audio, --image-tokens and --image-decode. The first
// two need each other, and are required unless the command works without them.
void add_media(CLI::App& app, MediaOptions& options, bool required = true);

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

// Encodes the prompt's pictures in order. Calls `take` with each chunk of a picture, the input that
// it was made of, and its rows, which are valid during the call. Consumes the projector's sources.
// Errors: those of the encoder; kBadShape (the projector belongs to another model); `take`'s.
using TakeRows =
    std::function<Status(const media::Chunk&, const media::Image&, const std::vector<float>& rows)>;
[[nodiscard]] Status encode_pictures(MediaPrompt* prompt, const native::LoadOptions& load,
                                     const TakeRows& take);

}  // namespace sluice::cli

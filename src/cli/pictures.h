// Pictures in `run`, `chat` and `serve`: the projector's options, and a prompt with pictures from
// its text to what a generation needs.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "chat/template.h"
#include "cli/cli.h"
#include "native/picture_source.h"

namespace sluice::cli {

// How pictures are read.
struct ImageReading {
  std::string image_tokens;  // "64:1024"
  std::string image_decode = "upright";

  [[nodiscard]] Result<media::TokenLimits> limits() const;
  [[nodiscard]] Result<media::DecodeOptions> decoding() const;
};
// Adds --image-tokens and --image-decode, whose default is the one that is set.
void add_image_reading(CLI::App& app, ImageReading& reading);

struct PictureOptions : ImageReading {
  std::string projector;  // "": what lies beside the model; "off": none
  std::vector<std::string> images;
};
// Adds --projector, --mmproj, --image-tokens and --image-decode; with_images: --image.
void add_pictures(CLI::App& app, PictureOptions& options, bool with_images);

// Opens the projector for a model that is about to be opened with `load`, which is adapted to it.
// Null if there is none. `needed`: that is an error, and so is one beside the model that does not
// fit it. Errors: open_projector's; kNotSupported (the model takes no pictures).
[[nodiscard]] Result<std::unique_ptr<native::PictureFile>> open_pictures(
    const PictureOptions& options, const std::string& model, bool needed,
    native::LoadOptions* load);

// The error of a picture for a model without projector.
[[nodiscard]] Status no_pictures();

// Pictures' files by name, as they were when they were shown.
using PictureFiles = std::map<std::string, std::vector<uint8_t>>;

// The tokens of a rendered prompt; `pictures` may be null if it has none. Errors: read_prompt's.
[[nodiscard]] Result<std::vector<session::Token>> tokens_of(const chat::Prompt& prompt,
                                                            const tokenizer::Tokenizer& tokenizer,
                                                            native::PictureFile* pictures,
                                                            const PictureOptions& options,
                                                            PictureFiles* shown = nullptr);

// Reads the files and makes the prompt's tokens. `prompt` has a mark for each. `shown`: files that
// are not read again; gets the others.
[[nodiscard]] Result<std::vector<session::Token>> read_prompt(
    native::PictureFile& pictures, std::string_view prompt, std::span<const std::string> files,
    const PictureOptions& options, const tokenizer::EncodeOptions& encoding,
    PictureFiles* shown = nullptr);

}  // namespace sluice::cli

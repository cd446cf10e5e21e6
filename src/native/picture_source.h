// Where pictures come from: files, and URLs in requests. Sizes are checked before anything is
// allocated, and headers before anything is decoded.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "media/decode.h"
#include "native/picture_file.h"

namespace sluice::native {

struct PictureUrls {
  bool http = false;               // also http and https; data URLs are always allowed
  bool private_addresses = false;  // with http: also servers that are not on the internet
  std::function<bool()> cancelled = nullptr;
};

// A picture's file, or what the caller's own URL names. Errors: those of the file,
// kInvalidArgument (too large), with the path; fetch_picture()'s.
[[nodiscard]] Result<std::vector<uint8_t>> read_picture_file(const std::string& path);
// The same, decoded. Errors: also media::decode's, with the path.
[[nodiscard]] Result<media::Image> read_picture(const std::string& path,
                                                const media::DecodeOptions& options = {});
// The file of a picture in a request. Errors: media::read_data_url's, io::fetch_guarded's;
// kNotSupported (a URL of another kind).
[[nodiscard]] Result<std::vector<uint8_t>> fetch_picture(const std::string& url,
                                                         const PictureUrls& allowed);

// Opens the projector of a model that is about to be opened with `load`, which is adapted to it.
// Errors: read_header's, PictureFile::open's and adapt's.
[[nodiscard]] Result<std::unique_ptr<PictureFile>> open_projector(
    const std::string& projector, const gguf::Header& model, LoadOptions* load,
    const media::TokenLimits& limits = {});
// The same for a model whose header is not open.
[[nodiscard]] Result<std::unique_ptr<PictureFile>> open_projector(
    const std::string& projector, const std::string& model, LoadOptions* load,
    const media::TokenLimits& limits = {});

}  // namespace sluice::native

#include "native/picture_source.h"

#include <span>

#include "io/guarded_fetch.h"
#include "media/data_url.h"

namespace sluice::native {

Result<std::vector<uint8_t>> read_picture_file(const std::string& path) {
  if (media::is_data_url(path) || path.find("://") != std::string::npos) {
    return fetch_picture(path, {.http = true, .private_addresses = true});
  }
  Result<std::unique_ptr<io::ByteSource>> source = io::open_file(path);
  if (!source.ok()) return source.status();
  const uint64_t size = (*source)->size();
  if (size > media::kMaxFileBytes) {
    return error(Code::kInvalidArgument, "the picture \"%.256s\" has %llu bytes; the limit is %llu",
                 path.c_str(), static_cast<unsigned long long>(size),
                 static_cast<unsigned long long>(media::kMaxFileBytes));
  }
  std::vector<uint8_t> bytes(static_cast<size_t>(size));
  SLUICE_RETURN_IF_ERROR((*source)->read(0, bytes));
  return bytes;
}

Result<media::Image> read_picture(const std::string& path, const media::DecodeOptions& options) {
  const Result<std::vector<uint8_t>> file = read_picture_file(path);
  if (!file.ok()) return file.status();
  Result<media::Image> image = media::decode(*file, options);
  if (image.ok()) return image;
  return error(image.status().code(), "%.256s: %s", path.c_str(), image.status().message().c_str());
}

Result<std::vector<uint8_t>> fetch_picture(const std::string& url, const PictureUrls& allowed) {
  if (media::is_data_url(url)) return media::read_data_url(url, media::kMaxFileBytes);
  if (!allowed.http) {
    return error(Code::kNotSupported,
                 "a picture must be a data URL: this server fetches none from elsewhere");
  }
  io::GuardedFetch guard;
  if (allowed.private_addresses) guard.allows = [](std::span<const uint8_t>) { return true; };
  guard.cancelled = allowed.cancelled;
  return io::fetch_guarded(url, guard);
}

Result<std::unique_ptr<PictureFile>> open_projector(const std::string& projector,
                                                    const gguf::Header& model, LoadOptions* load,
                                                    const media::TokenLimits& limits) {
  Result<ModelHeader> file = read_projector_header(projector, load->source);
  if (!file.ok()) return file.status();
  Result<std::unique_ptr<PictureFile>> out =
      PictureFile::open(std::move(*file), model, limits, load->engine.kernels);
  if (!out.ok()) return out.status();
  SLUICE_RETURN_IF_ERROR((*out)->adapt(&load->engine));
  return out;
}

Result<std::unique_ptr<PictureFile>> open_projector(const std::string& projector,
                                                    const std::string& model, LoadOptions* load,
                                                    const media::TokenLimits& limits) {
  const Result<ModelHeader> text = read_header(model, load->source);
  if (!text.ok()) return text.status();
  return open_projector(projector, text->header, load, limits);
}

}  // namespace sluice::native

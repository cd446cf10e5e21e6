// Takes the place of decode_webp.cpp in a build without libwebp.
#include "media/codecs.h"

namespace sluice::media {
namespace {

Status no_webp() {
  return error(Code::kNotSupported,
               "this build was made without libwebp: WebP pictures cannot be read");
}

}  // namespace

const Codec kWebp = {"WebP", [](Bytes, StoredInfo*) { return no_webp(); },
                     [](Bytes, DecodeMode, Image*) { return no_webp(); }};

}  // namespace sluice::media

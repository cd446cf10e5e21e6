// Takes the place of decode_jpeg.cpp in a build without libjpeg.
#include "media/codecs.h"

namespace sluice::media {
namespace {

Status no_jpeg() {
  return error(Code::kNotSupported,
               "this build was made without libjpeg: JPEG pictures cannot be read");
}

}  // namespace

const Codec kJpeg = {"JPEG", [](Bytes, StoredInfo*) { return no_jpeg(); },
                     [](Bytes, DecodeMode, Image*) { return no_jpeg(); }};

}  // namespace sluice::media

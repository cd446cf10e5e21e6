// Takes the place of decode_png.cpp in a build without libpng.
#include "media/codecs.h"

namespace sluice::media {
namespace {

Status no_png() {
  return error(Code::kNotSupported,
               "this build was made without libpng: PNG pictures cannot be read");
}

}  // namespace

const Codec kPng = {"PNG", [](Bytes, StoredInfo*) { return no_png(); },
                    [](Bytes, DecodeMode, Image*) { return no_png(); }};

}  // namespace sluice::media

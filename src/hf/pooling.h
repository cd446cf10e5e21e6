// How the rows of a text become its embedding, as sentence-transformers' files say it.
#pragma once

#include <string_view>

#include "gguf/metadata_writer.h"
#include "hf/model.h"

namespace sluice::hf {

// From modules.json and 1_Pooling/config.json the key pooling_type; nothing where they are absent.
// Errors: kBadHeader, kUnsupportedArchitecture for a module or a way of pooling that is not known.
[[nodiscard]] Status write_pooling(const Directory& directory, std::string_view arch,
                                   gguf::MetadataWriter* out);

}  // namespace sluice::hf

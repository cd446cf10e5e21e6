// Pooling: how the output rows of an input become its embedding, from the files of
// sentence-transformers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gguf/metadata_writer.h"
#include "hf/model.h"

namespace sluice::hf {

// The folders of the Dense modules in modules.json, in order: at most kMaxDense, each a plain name.
// Errors: kBadHeader, kUnsupportedArchitecture for unsupported modules or an unsupported order.
inline constexpr size_t kMaxDense = 2;
[[nodiscard]] Result<std::vector<std::string>> dense_folders(std::string_view modules);

// Writes pooling_type from 1_Pooling/config.json, if there is one, and adds the tensors dense_2 and
// dense_3 from Dense modules. Errors: kBadHeader, kBadShape, kUnsupportedType, and
// kUnsupportedArchitecture for an unsupported pooling type or activation.
[[nodiscard]] Status write_pooling(const Directory& directory, std::string_view arch, Model* model,
                                   gguf::MetadataWriter* out);

}  // namespace sluice::hf

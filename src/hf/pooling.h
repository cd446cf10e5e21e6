// How the rows of a text become its embedding, as sentence-transformers' files say it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gguf/metadata_writer.h"
#include "hf/model.h"

namespace sluice::hf {

// The folders of modules.json's Dense modules, in order: at most kMaxDense, each a plain name.
// Errors: kBadHeader, kUnsupportedArchitecture for modules, or an order of them, that is not known.
inline constexpr size_t kMaxDense = 2;
[[nodiscard]] Result<std::vector<std::string>> dense_folders(std::string_view modules);

// From 1_Pooling/config.json the key pooling_type, nothing where it is absent; from Dense modules
// the tensors dense_2 and dense_3. Errors: kBadHeader, kBadShape, kUnsupportedType, and
// kUnsupportedArchitecture for a way of pooling or an activation that is not known.
[[nodiscard]] Status write_pooling(const Directory& directory, std::string_view arch, Model* model,
                                   gguf::MetadataWriter* out);

}  // namespace sluice::hf

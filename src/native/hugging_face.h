// Finds models on the Hugging Face hub or a mirror: hf: references become addresses.
#pragma once

#include <string>
#include <vector>

#include "io/byte_source.h"

namespace sluice::native {

// The address of a hf: reference: of a GGUF file, or of a directory of safetensors where the
// repository has no GGUF file. Other addresses and paths stay as they are. Without a connection,
// what is cached of the repository. Errors: kInvalidArgument, kNotFound (no such repository,
// quantization or model; the message says what there is), kNetwork, kHttpStatus.
[[nodiscard]] Result<std::string> model_source(const std::string& given,
                                               const io::OpenOptions& options);

// The projector for pictures that lies beside a model, in its directory or repository; the
// directory itself if that has a vision tower; "" if there is none, or the repository cannot be
// listed.
[[nodiscard]] std::string projector_source(const std::string& model,
                                           const io::OpenOptions& options);

// The address of the cached model that a hf: reference means; "" if there is none.
[[nodiscard]] Result<std::string> cached_model(const std::string& reference,
                                               const std::vector<io::CachedModel>& models);

}  // namespace sluice::native

// Opening a Hugging Face model directory (path or URL): finds and reads the small files, parses the
// directories of the safetensors files, and hands the whole to gguf::describe_hf_model.
#pragma once

#include <string>

#include "native/model_file.h"

namespace sluice::native {

// Does `path` name a directory, its config.json, or a safetensors file in it, rather than a GGUF?
[[nodiscard]] bool is_hf_directory(const std::string& path);

// Errors: those of reading and of gguf::describe_hf_model.
[[nodiscard]] Result<ModelHeader> read_hf_header(const std::string& path,
                                                 const io::OpenOptions& options);

}  // namespace sluice::native

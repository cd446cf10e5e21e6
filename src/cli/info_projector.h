// What `info` shows of a vision projector: its keys and its tensors.
#pragma once

#include "gguf/gguf.h"

namespace sluice::cli {

[[nodiscard]] bool is_projector(const gguf::Header& header);
// Prints it. Returns the exit status.
[[nodiscard]] int info_of_projector(const gguf::Header& header, bool as_json);

}  // namespace sluice::cli

// Spellings of llama.cpp's that CLI11 cannot read: it knows no names of several letters behind one
// dash. They are rewritten before the arguments are parsed.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace sluice::cli {

// -hf REPO becomes the model hf:REPO; -ctk TYPE and -ctv TYPE become --kv-type K,V. Arguments
// behind
// "--" stay. Errors: kInvalidArgument for -ngl, which asks for a GPU, and where a value is missing.
[[nodiscard]] Result<std::vector<std::string>> translate_spellings(
    const std::vector<std::string>& arguments);

}  // namespace sluice::cli

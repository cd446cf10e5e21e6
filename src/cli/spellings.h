// llama.cpp's option spellings, rewritten before parsing: CLI11 has no names of several letters
// after one dash.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace sluice::cli {

// Rewrites -hf REPO to --model hf:REPO, -ctk TYPE and -ctv TYPE to --kv-type K,V, -md to --draft,
// -np to --parallel and --grammar-file to --grammar. Arguments after "--" are kept as they are.
// Errors: kInvalidArgument for -ngl, which asks for a GPU, and for a missing value.
[[nodiscard]] Result<std::vector<std::string>> translate_spellings(
    const std::vector<std::string>& arguments);

}  // namespace sluice::cli

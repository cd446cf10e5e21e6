// Headers, tokens and the hub's address for requests: checked once, with the environment's
// defaults.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "io/byte_source.h"

namespace sluice::io {

// `token` and `hub` replace HF_TOKEN and HF_ENDPOINT unless they are empty. `variable` reads the
// environment and returns "" for what is not set. Errors: kInvalidArgument, which names the header
// or the option and never shows a value.
[[nodiscard]] Result<Credentials> make_credentials(
    std::vector<std::string> headers, const std::string& token, const std::string& hub,
    const std::function<std::string(const char*)>& variable);
// The same for this process.
[[nodiscard]] Result<Credentials> make_credentials(std::vector<std::string> headers,
                                                   const std::string& token,
                                                   const std::string& hub);

}  // namespace sluice::io

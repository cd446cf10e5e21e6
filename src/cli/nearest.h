// The name that a mistyped one was meant to be.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice::cli {

// The known name that begins with `given`, or differs from it least, in at most two characters. ""
// if there is none.
[[nodiscard]] std::string nearest_name(std::string_view given,
                                       const std::vector<std::string>& names);
// ": did you mean NAME", or "".
[[nodiscard]] std::string did_you_mean(std::string_view given,
                                       const std::vector<std::string>& names);

}  // namespace sluice::cli

// Searches the text of a template for signs of the formats it teaches, and trims texts.
#pragma once

#include <string_view>

namespace sluice::chat {

// Whether a text matches one of several patterns, which '¦' separates. A pattern is a list of
// strings that occur one behind another, with '…' between them.
[[nodiscard]] bool matches(std::string_view text, std::string_view patterns);
// Whether `word`, in lower case, occurs in the text in any case.
[[nodiscard]] bool mentions(std::string_view text, std::string_view word);

// The text without ASCII white space at its end; at both ends.
[[nodiscard]] std::string_view right_trimmed(std::string_view text);
[[nodiscard]] std::string_view trimmed(std::string_view text);

}  // namespace sluice::chat

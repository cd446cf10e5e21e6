// Supported formats of JSON Schema as regular expressions. Each covers the format or a subset of
// it: no text that a grammar allows violates the format.
#pragma once

#include <string>
#include <string_view>

namespace sluice::grammar {

enum class FormatKind : uint8_t {
  kKnown,      // *pattern is set
  kRefused,    // a standard format that is not supported
  kAnnotation  // not a standard format: ignored
};
// *longest is the format's maximum length in characters, else 0.
[[nodiscard]] FormatKind find_format(std::string_view name, std::string* pattern,
                                     uint32_t* longest);

}  // namespace sluice::grammar

// The formats of JSON Schema that are promised, as regular expressions. Each is the format or a
// part of it: no text that a grammar allows breaks the format.
#pragma once

#include <string>
#include <string_view>

namespace sluice::grammar {

enum class FormatKind : uint8_t {
  kKnown,      // *pattern holds it
  kRefused,    // a format of the standard that is not promised
  kAnnotation  // no format of the standard: it means nothing
};
// `longest` is set where the format limits the characters, else 0.
[[nodiscard]] FormatKind find_format(std::string_view name, std::string* pattern,
                                     uint32_t* longest);

}  // namespace sluice::grammar

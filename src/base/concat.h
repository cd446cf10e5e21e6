// Joins texts. One call in place of several `+` makes smaller programs.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace sluice {

// A text to join. Its constructors are calls, because they are shorter than what they do.
struct TextPart {
  __attribute__((noinline)) TextPart(std::string_view text) : view(text) {}
  __attribute__((noinline)) TextPart(const char* text) : view(text) {}
  __attribute__((noinline)) TextPart(const std::string& text) : view(text) {}
  std::string_view view;
};

[[nodiscard]] inline std::string concat(std::initializer_list<TextPart> parts) {
  std::string out;
  for (const TextPart& part : parts) out += part.view;
  return out;
}

}  // namespace sluice

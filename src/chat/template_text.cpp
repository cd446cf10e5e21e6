#include "chat/template_text.h"

#include <algorithm>

namespace sluice::chat {
namespace {

constexpr std::string_view kOr = "¦", kThen = "…";

// Removes and returns the text before the next `mark`, or all of it.
std::string_view next_part(std::string_view* rest, std::string_view mark) {
  const size_t end = rest->find(mark);
  const std::string_view part = rest->substr(0, end);
  rest->remove_prefix(end == std::string_view::npos ? rest->size() : end + mark.size());
  return part;
}

}  // namespace

bool matches(std::string_view text, std::string_view patterns) {
  while (!patterns.empty()) {
    std::string_view pattern = next_part(&patterns, kOr);
    size_t at = 0;
    while (!pattern.empty() && at != std::string_view::npos) {
      const std::string_view part = next_part(&pattern, kThen);
      at = text.find(part, at);
      if (at != std::string_view::npos) at += part.size();
    }
    if (at != std::string_view::npos) return true;
  }
  return false;
}

bool mentions(std::string_view text, std::string_view word) {
  const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a | 0x20 : a) == b; };
  return std::search(text.begin(), text.end(), word.begin(), word.end(), same) != text.end();
}

std::string_view right_trimmed(std::string_view text) {
  return text.substr(0, text.find_last_not_of(" \t\n\v\f\r") + 1);
}

std::string_view trimmed(std::string_view text) {
  text = right_trimmed(text);
  return text.substr(std::min(text.find_first_not_of(" \t\n\v\f\r"), text.size()));
}

}  // namespace sluice::chat

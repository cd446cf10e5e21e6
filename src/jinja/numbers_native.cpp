// Reads numbers with <charconv>, which Emscripten's library lacks for floating point.
#include <charconv>

#include "jinja/numbers.h"

namespace sluice::jinja {

std::optional<double> read_double(std::string_view text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, bad] = std::from_chars(text.data(), end, number);
  return bad == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

}  // namespace sluice::jinja

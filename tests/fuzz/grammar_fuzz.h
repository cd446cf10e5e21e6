// Shared by the three fuzz targets of src/grammar: compiles the input as a grammar of one kind and
// checks a text against it. The first byte says how much of the rest is the text.
#pragma once

#include <cstdlib>

#include "grammar/grammar.h"

namespace sluice::grammar {

inline int fuzz(Kind kind, const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view all(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string_view text = all.substr(all.size() - all.size() * data[0] / 1024);
  const auto grammar = compile(kind, all.substr(0, all.size() - text.size()), nullptr);
  if (!grammar.ok()) {
    if (grammar.status().message().empty()) std::abort();
    return 0;
  }
  const auto whole = check(**grammar, text);
  // A prefix of an accepted text must not be rejected.
  if (whole.ok() && *whole != Verdict::kReject) {
    const auto part = check(**grammar, text.substr(0, text.size() / 2));
    if (part.ok() && *part == Verdict::kReject && !(*grammar)->has_tokens) std::abort();
  }
  return 0;
}

}  // namespace sluice::grammar

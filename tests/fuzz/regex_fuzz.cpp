// Fuzzes the compiler of regular expressions, and reads a text by what came of it. The first byte
// says how much of the rest is the text.
#include <cstdlib>

#include "grammar/grammar.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice::grammar;
  if (size == 0) return 0;
  const std::string_view all(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string_view text = all.substr(all.size() - all.size() * data[0] / 1024);
  const auto grammar = compile(Kind::kRegex, all.substr(0, all.size() - text.size()), nullptr);
  if (!grammar.ok()) {
    if (grammar.status().message().empty()) std::abort();
    return 0;
  }
  const auto whole = check(**grammar, text);
  // What begins a text that is allowed is never rejected.
  if (whole.ok() && *whole != Verdict::kReject) {
    const auto part = check(**grammar, text.substr(0, text.size() / 2));
    if (part.ok() && *part == Verdict::kReject && !(*grammar)->has_tokens) std::abort();
  }
  return 0;
}

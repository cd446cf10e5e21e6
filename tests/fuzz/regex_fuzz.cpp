// Fuzzes the regular expression compiler.
#include "grammar_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return sluice::grammar::fuzz(sluice::grammar::Kind::kRegex, data, size);
}

// Fuzzes the JSON schema compiler.
#include "grammar_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return sluice::grammar::fuzz(sluice::grammar::Kind::kJsonSchema, data, size);
}

// Fuzzes hyperparameters, the model family's program and the memory plan of a header. The first
// byte selects the budget, the rest is the beginning of a GGUF file. Any header gives a typed
// error, or a plan within the budget.
#include <cstdlib>

#include "session/engine.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  sluice::gguf::Header header;
  const auto parsed = sluice::gguf::parse_header({data + 1, size - 1}, 0, &header);
  if (!parsed.ok() || !parsed->done) return 0;
  sluice::session::EngineOptions options;
  options.memory_budget = uint64_t{1} << (data[0] % 48);
  options.n_ctx = (data[0] & 0x80) != 0 ? 64 : 0;
  options.n_threads = 1;
  const auto found = sluice::session::inspect(header, options);
  if (!found.ok()) {
    if (found.status().message().empty()) std::abort();
    return 0;
  }
  if (found->plan.total() > options.memory_budget) std::abort();
  if (found->plan.items.mat.size() != found->program.mats.size()) std::abort();
  return 0;
}

// Fuzzes reading importance matrices in both formats. Accepted input gives exactly the requested
// moments; rejected input gives an error message.
#include <cstdlib>

#include "convert/imatrix.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto parsed = sluice::convert::Imatrix::parse({data, size});
  if (!parsed.ok()) {
    if (parsed.status().message().empty()) std::abort();
    return 0;
  }
  if (parsed->size() == 0 || parsed->bytes() > 2 * size) std::abort();
  for (const uint64_t cols : {1ull, 2ull, 3ull, 32ull}) {
    sluice::gguf::Tensor tensor;
    tensor.name = "blk.0.attn_q.weight";
    tensor.ne = {cols, 4, 2, 1};
    const auto found = parsed->find(tensor);
    if (!found.ok() || *found == nullptr) continue;
    if ((*found)->size() != cols && (*found)->size() != 2 * cols) std::abort();
    for (const float moment : **found) {
      if (!(moment >= 0)) std::abort();
    }
  }
  return 0;
}

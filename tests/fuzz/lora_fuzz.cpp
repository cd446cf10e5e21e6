// Fuzzes reading adapters. If the first byte is G, the rest is a GGUF file. Otherwise the rest is
// PEFT's config after a 3-byte length, then a safetensors file. Tensors of accepted input lie
// within the file, and their shapes match.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "adapter/adapter.h"

namespace {

void check(bool ok) {
  if (!ok) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const bool gguf = *data == 'G';
  ++data;
  --size;
  std::string config;
  if (!gguf && size >= 3) {
    const size_t n = static_cast<size_t>(data[0]) | static_cast<size_t>(data[1]) << 8 |
                     static_cast<size_t>(data[2]) << 16;
    data += 3;
    size -= 3;
    config.assign(reinterpret_cast<const char*>(data), std::min(n, size));
    data += config.size();
    size -= config.size();
  }
  sluice::adapter::Adapter adapter;
  const auto parsed = gguf ? sluice::adapter::parse_gguf({data, size}, size, &adapter)
                           : sluice::adapter::parse_peft(config, {data, size}, size, &adapter);
  if (!parsed.ok()) {
    check(!parsed.status().message().empty());
    return 0;
  }
  if (!parsed->done) return 0;
  check(!adapter.pairs.empty());
  for (const auto& p : adapter.pairs) {
    check(p.rank > 0 && static_cast<uint64_t>(p.rank) <= sluice::adapter::kMaxRank);
    check(p.b.ne[0] == static_cast<uint64_t>(p.rank));
    check(p.a.offset + p.a.bytes <= size && p.b.offset + p.b.bytes <= size);
    check(p.a.bytes % p.a.ne[2] == 0 && p.b.bytes % p.b.ne[2] == 0);
  }
  return 0;
}

// Fuzzes the decoders of every block type. The first byte chooses the type, the rest are blocks.
// Every instruction set must decode finite blocks as the scalar reference does, from file layout
// and from a packed group. Blocks that are not finite must be decoded and multiplied without
// reading past their end; the engine refuses them later.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/aligned.h"
#include "kernels/kernels.h"
#include "kernels/reference/reference.h"

namespace {

namespace k = sluice::kernels;

constexpr k::Type kTypes[] = {
#define SLUICE_BLOCK_TYPE(NAME, name, id, values, bytes) k::Type::k##NAME,
#include "kernels/types.def"
};
constexpr int64_t kMaxBlocks = 12;

sluice::AlignedBuffer buffer(size_t bytes) {
  sluice::AlignedBuffer out;
  if (!out.allocate(bytes).ok()) std::abort();
  return out;
}

void decode(const k::Table& table, k::Type type, const std::vector<uint8_t>& blocks,
            const std::vector<float>& wanted) {
  const bool finite = k::all_finite(type, blocks.data(), static_cast<int64_t>(wanted.size()));
  const auto n = static_cast<int64_t>(wanted.size());
  std::vector<float> got(wanted.size());
  table.dequantize(type, blocks.data(), n, got.data());
  if (finite && got != wanted) std::abort();
  const auto group = buffer(table.packed_group_bytes(type, n));
  table.pack_group(type, blocks.data(), 1, n, group.as<void>());
  const k::Matrix packed{type, true, 1, n, group.as<void>()};
  table.unpack_row(packed, 0, got.data());
  if (finite && got != wanted) std::abort();
}

void multiply(const k::Table& table, k::Type type, const std::vector<uint8_t>& blocks, int64_t n) {
  const std::vector<float> x(static_cast<size_t>(n), 0.5f);
  const auto acts = buffer(table.q8_bytes(n)), scratch = buffer(table.matmul_scratch(type, n));
  table.quantize_q8(x.data(), n, n, 1, acts.as<void>());
  float y = 0;
  k::MatmulArgs args{};
  args.w = {type, false, 1, n, blocks.data()};
  args.r1 = 1;
  args.x = {x.data(), n, acts.as<void>(), 1};
  args.scale = 1;
  args.y = &y;
  args.ldy = 1;
  args.scratch = scratch.as<void>();
  table.matmul(args);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const k::Type type = kTypes[data[0] % std::size(kTypes)];
  const auto block = static_cast<int64_t>(k::reference::block_bytes(type));
  const int64_t count = std::min(static_cast<int64_t>(size - 1) / block, kMaxBlocks);
  if (count == 0) return 0;
  // A copy of its own, so that a read past the end is seen.
  const std::vector<uint8_t> blocks(data + 1, data + 1 + count * block);
  const int64_t n = count * k::reference::block_values(type);
  std::vector<float> wanted(static_cast<size_t>(n));
  k::reference::dequantize(type, blocks.data(), n, wanted.data());
  for (const char* const* name = k::available(); *name != nullptr; ++name) {
    const k::Table& table = *k::by_name(*name);
    decode(table, type, blocks, wanted);
    multiply(table, type, blocks, n);
  }
  return 0;
}

// The sizes of ggml's tensor types. Types without a kernel are here too, so that a file with one of
// them is still described correctly before it is refused by name.
#include <array>

#include "gguf/gguf.h"

namespace sluice::gguf {
namespace {

constexpr std::array<TypeInfo, 42> by_id() {
  std::array<TypeInfo, 42> types{};
#define SLUICE_ELEMENT_TYPE(NAME, name, id, bytes) types[id] = {#NAME, 1, bytes};
#define SLUICE_BLOCK_TYPE(NAME, name, id, values, bytes) types[id] = {#NAME, values, bytes};
#define SLUICE_OTHER_TYPE(NAME, id, values, bytes) types[id] = {#NAME, values, bytes};
#include "kernels/types.def"
  return types;
}

}  // namespace

const TypeInfo* type_info(TensorType type) {
  static constexpr auto kTypes = by_id();
  const auto id = static_cast<uint32_t>(type);
  if (id >= kTypes.size() || kTypes[id].name == nullptr) return nullptr;
  return &kTypes[id];
}

}  // namespace sluice::gguf

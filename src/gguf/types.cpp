// The sizes of ggml's tensor types. Types without a kernel are listed too, so that a file with one
// of them is described correctly before the error that names the type.
#include <array>

#include "gguf/gguf.h"

namespace sluice::gguf {
namespace {

// QSF's own types follow ggml's.
constexpr uint32_t kOfGgml = 43, kFirstOfQsf = 225;
constexpr uint32_t place(uint32_t id) {
  return id < kOfGgml ? id : id < kFirstOfQsf ? UINT32_MAX : id - (kFirstOfQsf - kOfGgml);
}

constexpr std::array<TypeInfo, kOfGgml + 4> by_id() {
  std::array<TypeInfo, kOfGgml + 4> types{};
#define SLUICE_ELEMENT_TYPE(NAME, name, id, bytes) types[place(id)] = {#NAME, 1, bytes};
#define SLUICE_BLOCK_TYPE(NAME, name, id, values, bytes) types[place(id)] = {#NAME, values, bytes};
#define SLUICE_OTHER_TYPE(NAME, id, values, bytes) types[place(id)] = {#NAME, values, bytes};
#include "kernels/types.def"
  return types;
}

}  // namespace

const TypeInfo* type_info(TensorType type) {
  static constexpr auto kTypes = by_id();
  const uint32_t at = place(static_cast<uint32_t>(type));
  if (at >= kTypes.size() || kTypes[at].name == nullptr) return nullptr;
  return &kTypes[at];
}

}  // namespace sluice::gguf

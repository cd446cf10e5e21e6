// The sizes of ggml's tensor types, block by block. Types without a kernel are here too, so that a
// file with one of them is still described correctly before it is refused by name.
// Source: the block structs of ggml (ggml-common.h), as documented in the GGUF specification.
#include "gguf/gguf.h"

namespace sluice::gguf {

const TypeInfo* type_info(TensorType type) {
  static constexpr TypeInfo kTypes[] = {
      {"F32", 1, 4},        {"F16", 1, 2},
      {"Q4_0", 32, 18},     {"Q4_1", 32, 20},
      {nullptr, 0, 0},      {nullptr, 0, 0},  // Q4_2 and Q4_3 were removed from ggml
      {"Q5_0", 32, 22},     {"Q5_1", 32, 24},
      {"Q8_0", 32, 34},     {"Q8_1", 32, 36},
      {"Q2_K", 256, 84},    {"Q3_K", 256, 110},
      {"Q4_K", 256, 144},   {"Q5_K", 256, 176},
      {"Q6_K", 256, 210},   {"Q8_K", 256, 292},
      {"IQ2_XXS", 256, 66}, {"IQ2_XS", 256, 74},
      {"IQ3_XXS", 256, 98}, {"IQ1_S", 256, 50},
      {"IQ4_NL", 32, 18},   {"IQ3_S", 256, 110},
      {"IQ2_S", 256, 82},   {"IQ4_XS", 256, 136},
      {"I8", 1, 1},         {"I16", 1, 2},
      {"I32", 1, 4},        {"I64", 1, 8},
      {"F64", 1, 8},        {"IQ1_M", 256, 56},
      {"BF16", 1, 2},       {nullptr, 0, 0},
      {nullptr, 0, 0},      {nullptr, 0, 0},  // Q4_0_N_M
      {"TQ1_0", 256, 54},   {"TQ2_0", 256, 66},
      {nullptr, 0, 0},      {nullptr, 0, 0},
      {nullptr, 0, 0},  // IQ4_NL_N_M, removed as well
      {"MXFP4", 32, 17},    {"NVFP4", 64, 36},
      {"Q1_0", 128, 18},
  };
  static_assert(sizeof(kTypes) / sizeof(kTypes[0]) == 42);
  const auto id = static_cast<uint32_t>(type);
  if (id >= sizeof(kTypes) / sizeof(kTypes[0]) || kTypes[id].name == nullptr) return nullptr;
  return &kTypes[id];
}

}  // namespace sluice::gguf

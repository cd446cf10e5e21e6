// Gathers a target's kernels into its Table. Included last by isa/<target>.cpp, once. In
// WebAssembly a second table lacks the types of few files, so that programs with few types link the
// same object, and the linker drops the kernels that they do not name.
#pragma once

#include <span>

#include "kernels/generic/attention.h"
#include "kernels/generic/quantize_acts.h"
#if defined(SLUICE_DIRECT)
#include "kernels/generic/unpacked_gemv.h"
#endif
#include "kernels/generic/decoded_matmul.h"
#include "kernels/generic/float_rows.h"
#include "kernels/generic/k_blocks.h"
#include "kernels/generic/kv_quantize.h"
#include "kernels/generic/matmul.h"
#include "kernels/generic/qsf_blocks.h"
#include "kernels/generic/recurrent.h"
#include "kernels/generic/vector.h"
#include "kernels/isa/targets.h"

namespace sluice::kernels::SLUICE_TARGET {
namespace {

struct TypeOps {
  Type type;
  ActFormat acts;
  size_t (*group_bytes)(int64_t cols);
  void (*pack_group)(const void* src, int32_t n_rows, int64_t cols, void* dst);
  void (*unpack_row)(const uint8_t* group, int row, int64_t cols, float* out);
  void (*multiply)(const MatmulArgs& a, const uint8_t* group, int64_t row);
};

template <class K>
constexpr TypeOps ops(Type type) {
  return {type, K::kActs, K::group_bytes, K::pack_group, K::unpack_row, K::multiply};
}

#define SLUICE_ELEMENT_OPS(NAME, name, id, bytes) ops<Float<Weight##NAME>>(Type::k##NAME),
#define SLUICE_BLOCK_OPS(NAME, name, id, values, bytes) ops<Quantized<NAME>>(Type::k##NAME),
constexpr TypeOps kAllTypes[] = {
#define SLUICE_ELEMENT_TYPE SLUICE_ELEMENT_OPS
#define SLUICE_BLOCK_TYPE SLUICE_BLOCK_OPS
#define SLUICE_QSF_TYPE(NAME, name, id, values, bytes) ops<QsfOps<NAME>>(Type::k##NAME),
#define SLUICE_DECODED_TYPE(NAME, name, id, values, bytes) ops<DecodedOps<NAME>>(Type::k##NAME),
#include "kernels/types.def"
};
constexpr TypeOps kCommonTypes[] = {
#define SLUICE_ELEMENT_TYPE SLUICE_ELEMENT_OPS
#define SLUICE_BLOCK_TYPE SLUICE_BLOCK_OPS
#define SLUICE_QSF_TYPE(NAME, name, id, values, bytes)
#define SLUICE_DECODED_TYPE(NAME, name, id, values, bytes)
#include "kernels/types.def"
};
#undef SLUICE_ELEMENT_OPS
#undef SLUICE_BLOCK_OPS

template <bool kAll>
constexpr std::span<const TypeOps> kTypes = kAllTypes;
template <>
constexpr std::span<const TypeOps> kTypes<false> = kCommonTypes;

template <bool kAll>
const TypeOps* find(Type type) {
  for (const TypeOps& t : kTypes<kAll>) {
    if (t.type == type) return &t;
  }
  return nullptr;
}

// One token times a group of rows in file layout, or null if these are packed first.
using Direct = void (*)(const MatmulArgs& a, const uint8_t* rows, int64_t row);
Direct direct([[maybe_unused]] Type type) {
#if defined(SLUICE_DIRECT)
  switch (type) {
    case Type::kQ4_0:
      return multiply_direct<DirectQ4_0>;
    case Type::kQ8_0:
      return multiply_direct<DirectQ8_0>;
    case Type::kIQ4_NL:
      return multiply_direct<DirectIQ4_NL>;
    case Type::kIQ4_XS:
      return multiply_direct<DirectIQ4_XS>;
    case Type::kQ4_K:
      return multiply_direct<DirectScaledK<BlockQ4_K>>;
#if !defined(__wasm__)  // code size matters on wasm
    case Type::kQ5_K:
      return multiply_direct<DirectScaledK<BlockQ5_K>>;
#endif
    case Type::kQ6_K:
      return multiply_direct<DirectQ6_K>;
    default:
      break;
  }
#endif
  return nullptr;
}

template <bool kAll>
bool supports(Type type) {
  return find<kAll>(type) != nullptr;
}
template <bool kAll>
ActFormat act_format(Type type) {
  return find<kAll>(type)->acts;
}
template <bool kAll>
size_t packed_group_bytes(Type type, int64_t cols) {
  return find<kAll>(type)->group_bytes(cols);
}
template <bool kAll>
void pack_group(Type type, const void* src, int32_t n_rows, int64_t cols, void* dst) {
  find<kAll>(type)->pack_group(src, n_rows, cols, dst);
}
template <bool kAll>
void dequantize(Type type, const void* src, int64_t n, float* out) {
  if constexpr (kAll) {
    switch (type) {
#define SLUICE_DECODED_TYPE(NAME, name, id, values, bytes) \
  case Type::k##NAME:                                      \
    return dequantize_decoded(DecodedOps<NAME>::kKind, src, n, out);
#include "kernels/types.def"
      default:
        break;
    }
  }
  reference::dequantize_common(type, src, n, out);
}
template <bool kAll>
void unpack_row(const Matrix& m, int64_t row, float* out) {
  const TypeOps& ops = *find<kAll>(m.type);
  const uint8_t* group = static_cast<const uint8_t*>(m.data) +
                         static_cast<size_t>(row / kRowGroup) * ops.group_bytes(m.cols);
  ops.unpack_row(group, static_cast<int>(row % kRowGroup), m.cols, out);
}

// Bytes of a panel of rows, and of the activations of a batch of tokens. Decoding a row group once
// per batch takes as long as multiplying five to ten tokens, so these batches are larger.
constexpr size_t kPanelBytes = 192 << 10;
template <bool kAll>
size_t batch_bytes([[maybe_unused]] Type type) {
  if constexpr (kAll) {
    switch (type) {
#define SLUICE_DECODED_TYPE(NAME, name, id, values, bytes) case Type::k##NAME:
#include "kernels/types.def"
      return 4 * kPanelBytes;
      default:
        break;
    }
  }
  return kPanelBytes;
}

// Packed rows [r0, r1) times many tokens, a panel of rows and a batch of tokens at a time, so that
// both stay in L2. Row group by row group, each would read a whole prompt's activations from L3.
template <bool kAll>
void multiply_panels(const TypeOps& ops, const MatmulArgs& a) {
  const size_t group_bytes = ops.group_bytes(a.w.cols);
  const bool q8 = ops.acts == ActFormat::kQ8;
  const size_t token_bytes = q8 ? q8_bytes(a.w.cols) : static_cast<size_t>(a.x.ld) * sizeof(float);
  const int64_t panel = kRowGroup * static_cast<int64_t>(kPanelBytes / group_bytes + 1);
  const size_t fit = batch_bytes<kAll>(ops.type) / (16 * token_bytes);
  const int64_t batch = 16 * static_cast<int64_t>(fit + 1);
  const uint8_t* data = static_cast<const uint8_t*>(a.w.data);
  for (int64_t first = a.r0; first < a.r1; first += panel) {
    const int64_t end = min_i64(a.r1, first + panel);
    for (int64_t t = 0; t < a.x.n_tokens; t += batch) {
      MatmulArgs part = a;
      const size_t skipped = static_cast<size_t>(t) * token_bytes;
      if (q8) {
        part.x.q8 = static_cast<const uint8_t*>(a.x.q8) + skipped;
      } else {
        part.x.f32 += t * a.x.ld;
      }
      part.x.n_tokens = static_cast<int32_t>(min_i64(batch, a.x.n_tokens - t));
      part.y += t * a.ldy;
      for (int64_t row = first; row < end; row += kRowGroup) {
        ops.multiply(part, data + static_cast<size_t>(row / kRowGroup) * group_bytes, row);
      }
    }
  }
}

template <bool kAll>
void matmul(const MatmulArgs& a) {
  const TypeOps& ops = *find<kAll>(a.w.type);
  if (a.w.packed) return multiply_panels<kAll>(ops, a);
  const size_t row_bytes = reference::row_bytes(a.w.type, a.w.cols);
  const Direct at_once = a.x.n_tokens != 1 ? nullptr : direct(a.w.type);
  for (int64_t row = a.r0; row < a.r1; row += kRowGroup) {
    const int32_t n_rows = static_cast<int32_t>(min_i64(kRowGroup, a.w.rows - row));
    const uint8_t* rows =
        static_cast<const uint8_t*>(a.w.data) + static_cast<size_t>(row) * row_bytes;
    if (at_once && n_rows == kRowGroup) {
      at_once(a, rows, row);
      continue;
    }
    ops.pack_group(rows, n_rows, a.w.cols, a.scratch);
    ops.multiply(a, static_cast<const uint8_t*>(a.scratch), row);
  }
}

template <bool kAll>
constexpr Table kTableOf = {
    kTargetName,
    kRowGroup,
    supports<kAll>,
    act_format<kAll>,
    packed_group_bytes<kAll>,
    pack_group<kAll>,
    dequantize<kAll>,
    unpack_row<kAll>,
    q8_bytes,
    quantize_q8,
    packed_group_bytes<kAll>,  // scratch holds one packed group
    matmul<kAll>,
    attention_scratch,
    attention,
    attention_merge,
    rms_norm,
    layer_norm,
    rope,
    silu_mul,
    gelu_mul,
    gelu_tanh,
    gelu_erf,
    silu,
    xielu,
    add,
    scale,
    soft_cap,
    softmax,
    f32_to_f16,
    f16_to_f32,
    argmax,
    l2_norm,
    sigmoid,
    tanh,
    exp,
    softplus,
    convolve,
    update_state,
    scan,
    rotate,
    quantize_kv,
    quantize_kv_group,
};

}  // namespace

const Table kTable = kTableOf<true>;
#if defined(__wasm__)
const Table kCommonTable = kTableOf<false>;
#endif

}  // namespace sluice::kernels::SLUICE_TARGET

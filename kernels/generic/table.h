// Gathers a target's kernels into its Table. Included last by isa/<target>.cpp, once.
#pragma once

#include "kernels/generic/attention.h"
#include "kernels/generic/quantize_acts.h"
#if defined(SLUICE_DIRECT)
#include "kernels/generic/unpacked_gemv.h"
#endif
#if !defined(SLUICE_COMMON_TYPES)
#include "kernels/generic/decoded_matmul.h"
#include "kernels/generic/qsf_blocks.h"
#endif
#include "kernels/generic/float_rows.h"
#include "kernels/generic/k_blocks.h"
#include "kernels/generic/kv_quantize.h"
#include "kernels/generic/matmul.h"
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

constexpr TypeOps kTypes[] = {
#define SLUICE_ELEMENT_TYPE(NAME, name, id, bytes) ops<Float<Weight##NAME>>(Type::k##NAME),
#define SLUICE_BLOCK_TYPE(NAME, name, id, values, bytes) ops<Quantized<NAME>>(Type::k##NAME),
#if defined(SLUICE_COMMON_TYPES)
#define SLUICE_QSF_TYPE(NAME, name, id, values, bytes)
#define SLUICE_DECODED_TYPE(NAME, name, id, values, bytes)
#else
#define SLUICE_QSF_TYPE(NAME, name, id, values, bytes) ops<QsfOps<NAME>>(Type::k##NAME),
#define SLUICE_DECODED_TYPE(NAME, name, id, values, bytes) ops<DecodedOps<NAME>>(Type::k##NAME),
#endif
#include "kernels/types.def"
};

const TypeOps* find(Type type) {
  for (const TypeOps& t : kTypes) {
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

bool supports(Type type) {
  return find(type) != nullptr;
}
ActFormat act_format(Type type) {
  return find(type)->acts;
}
size_t packed_group_bytes(Type type, int64_t cols) {
  return find(type)->group_bytes(cols);
}
void pack_group(Type type, const void* src, int32_t n_rows, int64_t cols, void* dst) {
  find(type)->pack_group(src, n_rows, cols, dst);
}
void dequantize(Type type, const void* src, int64_t n, float* out) {
#if !defined(SLUICE_COMMON_TYPES)
  switch (type) {
#define SLUICE_DECODED_TYPE(NAME, name, id, values, bytes) \
  case Type::k##NAME:                                      \
    return dequantize_decoded(DecodedOps<NAME>::kKind, src, n, out);
#include "kernels/types.def"
    default:
      break;
  }
#endif
  reference::dequantize_common(type, src, n, out);
}
void unpack_row(const Matrix& m, int64_t row, float* out) {
  const TypeOps& ops = *find(m.type);
  const uint8_t* group = static_cast<const uint8_t*>(m.data) +
                         static_cast<size_t>(row / kRowGroup) * ops.group_bytes(m.cols);
  ops.unpack_row(group, static_cast<int>(row % kRowGroup), m.cols, out);
}

// Bytes of a panel of rows, and of the activations of a batch of tokens. Decoding a row group once
// per batch takes as long as multiplying five to ten tokens, so these batches are larger.
constexpr size_t kPanelBytes = 192 << 10;
size_t batch_bytes([[maybe_unused]] Type type) {
#if !defined(SLUICE_COMMON_TYPES)
  switch (type) {
#define SLUICE_DECODED_TYPE(NAME, name, id, values, bytes) case Type::k##NAME:
#include "kernels/types.def"
    return 4 * kPanelBytes;
    default:
      break;
  }
#endif
  return kPanelBytes;
}

// Packed rows [r0, r1) times many tokens, a panel of rows and a batch of tokens at a time, so that
// both stay in L2. Row group by row group, each would read a whole prompt's activations from L3.
void multiply_panels(const TypeOps& ops, const MatmulArgs& a) {
  const size_t group_bytes = ops.group_bytes(a.w.cols);
  const bool q8 = ops.acts == ActFormat::kQ8;
  const size_t token_bytes = q8 ? q8_bytes(a.w.cols) : static_cast<size_t>(a.x.ld) * sizeof(float);
  const int64_t panel = kRowGroup * static_cast<int64_t>(kPanelBytes / group_bytes + 1);
  const size_t fit = batch_bytes(ops.type) / (16 * token_bytes);
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

void matmul(const MatmulArgs& a) {
  const TypeOps& ops = *find(a.w.type);
  if (a.w.packed) return multiply_panels(ops, a);
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

}  // namespace

const Table kTable = {
    kTargetName,
    kRowGroup,
    supports,
    act_format,
    packed_group_bytes,
    pack_group,
    dequantize,
    unpack_row,
    q8_bytes,
    quantize_q8,
    packed_group_bytes,  // scratch holds one packed group
    matmul,
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

}  // namespace sluice::kernels::SLUICE_TARGET

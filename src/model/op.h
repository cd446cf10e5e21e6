// One operation of a forward pass: from where to where it goes, and one struct with what its kind
// has beside that. The struct is the kind, so that an operation has no field that nobody reads; to
// add a kind, see README.md beside this file. Every buffer is [n_tokens][width] of f32, and columns
// count its values. Numbers of vecs, mats, ropes and so on are indices into Program's lists; -1:
// none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <variant>

#include "kernels/kernels.h"

namespace sluice::model {

enum class Buf : uint8_t {
  kX,       // [n_embd] residual stream
  kH,       // [n_embd] normed input of the next product
  kQkv,     // [n_head*dk + n_head_kv*dk + n_head_kv*dv] queries, keys, values
  kAtt,     // [n_head*dv] attention output
  kGateUp,  // [2*n_ff] gate and up; the activated product replaces the gate
  kT,       // [n_embd] a block's output before its post-norm
  kRouter,  // [4][n_expert] logits, then what is made of them to choose experts
  kLogits,  // [n_vocab]
  kFirst,   // [n_embd] what the first layer leaves to the others (RWKV 7's values)
  kCount,
};
inline constexpr size_t kBufCount = static_cast<size_t>(Buf::kCount);

enum class NormKind : uint8_t { kRms, kLayer, kL2 };  // L2: scale * x / max(|x|, eps)
enum class Activation : uint8_t {
  kSiluMul,
  kGeluMul,
  kGeluTanh,
  kReluMul,
  kReluSquared,    // max(x, 0)^2, without up
  kClampedSwiglu,  // gpt-oss: g sigmoid(1.702 g) (u + 1), g at most 7, u between -7 and 7
  kGeluErf,
  kTanh,
  kReluSquaredMul,  // max(gate, 0)^2 * up
  kXielu,           // without up; ActivateOp::xielu
  kRelu,            // max(x, 0), without up
};
// Whether the activation multiplies two products, gate and up; else it is a function of one.
[[nodiscard]] constexpr bool is_gated(Activation act) {
  return act != Activation::kGeluTanh && act != Activation::kReluSquared &&
         act != Activation::kGeluErf && act != Activation::kTanh && act != Activation::kXielu &&
         act != Activation::kRelu;
}
enum class Unary : uint8_t {
  kNone,
  kSilu,
  kSigmoid,
  kTanh,
  kSoftplus,
  kReluSquared,
  kExpNegExp,      // exp(-exp(x)): RWKV 6's decay
  kExpNegSigmoid,  // exp(-sigmoid(x) / sqrt(e)): RWKV 7's
};

// Columns of a buffer.
struct Place {
  Buf buf = Buf::kX;
  int32_t col = -1;  // -1: none
};

struct MatPart {
  int32_t mat = -1;   // [rows][n]
  int32_t bias = -1;  // vec [rows]
  int32_t out_col = 0;
  int32_t factor = -1;  // vec of one value that all weights are multiplied by, without a bias
};

// Heads of an attention part. kQkv holds its queries, then its keys, then its values.
struct AttentionShape {
  int32_t heads = 0, kv_heads = 0;  // of queries; of keys and values
  int32_t dk = 0, dv = 0;           // values of a query and key head, of a value head
  int32_t cache = -1;  // layer whose cache is read; an earlier one's than the operation's: shared,
                       // and nothing is stored
  bool values_in_keys = false;  // a value head is the first dv values of its key head
  bool causal = true;  // else all of a text is seen, a window to both sides; its layers then share
                       // one cache, which each fills anew

  // Whether a layer computes its keys and values itself.
  [[nodiscard]] bool owned_by(int64_t layer) const { return !causal || cache == layer; }
  [[nodiscard]] int32_t group() const { return heads / kv_heads; }  // query heads of a KV head
  [[nodiscard]] int32_t keys() const { return heads * dk; }         // column of the first key
  [[nodiscard]] int32_t values() const { return keys() + kv_heads * dk; }
};

// What an operation carries on from token to token.
struct Carried {
  int64_t size = 0, at = 0;  // f32 values, and which of the layer's state is the first
};

// The vecs of an operation, in the order in which they are read first.
using TwoVecs = std::array<int32_t, 2>;

// --- The kinds. `in` and `out` are the operation's rows from in_col and out_col on, of n values
// where nothing else is said.

// out = the token's row of the embedding * scale, + types, + its position's row of positions.
struct EmbedOp {
  int32_t positions = -1, types = -1;  // vecs [positions][n], [n]
  float scale = 1;
  [[nodiscard]] TwoVecs vecs() const { return {positions, types}; }
};

// out = norm(in) * weight + bias, for each of `heads` groups of n values.
struct NormOp {
  int32_t weight = -1, bias = -1;  // vecs [n], or [heads][n]
  int32_t heads = 1;
  NormKind kind = NormKind::kRms;
  bool per_head = false;  // weight and bias are [heads][n]
  float eps = 0;          // 0: the model's own
  float scale = 1;        // of kL2
  [[nodiscard]] TwoVecs vecs() const { return {weight, bias}; }
};

// out[out_col of the part ..] = (add ? out : 0) + scale * (W in + bias), for each part.
struct MatmulOp {
  std::array<MatPart, 3> all{};
  int32_t n_parts = 0;
  bool add = false;
  float scale = 1;
  [[nodiscard]] std::span<const MatPart> parts() const {
    return {all.data(), static_cast<size_t>(n_parts)};
  }
};

// Rotates the heads of queries and of the layer's own keys in kQkv; in_col is where in each head
// the rotated values are.
struct RopeOp {
  int32_t rope = 0;
  AttentionShape att;
};

// Stores the keys and values of kQkv where they are the layer's own; kAtt = the mean of the values
// that each query sees, weighed by the softmax of softcap(scale * q k) - slope * distance + bias.
struct AttentionOp {
  int32_t sinks = -1;          // vec [heads]: a score of each that has no value
  int32_t relative_bias = -1;  // vec [bucket][heads], with `relative`
  int32_t relative = -1;       // index into Program::buckets
  AttentionShape att;
  float scale = 0;       // 0: 1 / sqrt(dk)
  float softcap = 0;     // softcap * tanh(x / softcap); 0: none
  float alibi = 0;       // ALiBi's greatest bias, 0: none
  int32_t window = 0;    // sliding, in tokens; 0: none
  bool chunked = false;  // the window is the query's own of the pieces of that length
  int32_t rope = -1;     // by which its queries and keys were rotated
  int32_t rope_col = 0;  // and from which value of each head on
  [[nodiscard]] TwoVecs vecs() const { return {sinks, relative_bias}; }
};

// In place: gate = act(gate, up), n values each, or act(gate) without up.
struct ActivateOp {
  Activation act = Activation::kSiluMul;
  kernels::Xielu xielu{};  // of kXielu
};

// out += scale * in
struct AddOp {
  float scale = 1;
};

// out = (add ? out : 0) + scale * the sum over chosen experts of weight * expert(in)
struct MoeOp {
  int32_t moe = -1;
  bool add = false;
  float scale = 1;
};

// In place: causal convolution over time of each of n channels, then `unary`. What it carries is
// the last taps - 1 inputs.
struct ConvOp {
  int32_t weights = -1, bias = -1;  // vecs [taps][n], [n]
  Unary unary = Unary::kNone;       // or kSilu
  Carried state;                    // [taps - 1][n]
  [[nodiscard]] TwoVecs vecs() const { return {weights, bias}; }
};

// Keeps only the rows of kX, n values of them, whose logits are wanted; a batch without any ends
// here.
struct SelectOp {};

// out = cap * tanh(in / cap)
struct SoftCapOp {
  float cap = 1;
};

// out = scale * in; 0: whatever is there
struct ScaleOp {
  float scale = 1;
};

// out *= sigmoid(in): `heads` values of in, each for n / heads values of out.
struct GateOp {
  int32_t heads = 1;
};

// out = in, kept between -limit and limit.
struct ClampOp {
  float limit = 0;
};

// One row of each text from its rows of kH, or each as it is, into kX.
struct PoolOp {};

// out = unary(in)
struct UnaryOp {
  Unary unary = Unary::kNone;
};

// out = in * unary(gate), by heads of n values whose gates lie `stride` apart. The gates become
// what they multiply by, in place.
struct GatedOp {
  Place gate;
  int32_t heads = 1, stride = 0;
  Unary unary = Unary::kNone;
};

// in = softplus(in + bias); out = exp(the rate of its head * in)
struct DecayOp {
  int32_t bias = -1, rates = -1;  // vecs [n], [heads]
  int32_t heads = 1;
  [[nodiscard]] TwoVecs vecs() const { return {bias, rates}; }
};

// out = the token before - in
struct ShiftOp {
  Carried state;  // [n]
};

// out = in + step * (weights + (add ? out : 0)), for each of `rows` rows of n values of out.
struct LerpOp {
  int32_t weights = -1;  // vec [rows][n]
  int32_t rows = 1;
  Place step;  // [n]
  bool add = false;
  [[nodiscard]] TwoVecs vecs() const { return {weights, -1}; }
};

// A linear recurrence over a matrix for each head.
struct StateOp {
  int32_t given = -1;  // vec: the skip [heads], of StateKind::kBonus the bonus [heads][keys]
  int32_t rec = -1;    // index into Program::recurrences, which says from where to where
  Carried state;       // [heads][keys][values]
  [[nodiscard]] TwoVecs vecs() const { return {given, -1}; }
};

// Mamba's selective scan.
struct ScanOp {
  int32_t rates = -1, skip = -1;  // vecs: A [keys][values], D [values]
  int32_t rec = -1;               // index into Program::recurrences, which says from where to where
  Carried state;                  // [keys][values]
  [[nodiscard]] TwoVecs vecs() const { return {rates, skip}; }
};

// RWKV 7's removal and replacement keys, of n values: see session/rwkv.cpp.
struct Rwkv7KeysOp {
  int32_t removal = -1, replacement = -1;  // vecs [n]
  int32_t rec = -1;                        // index into Program::recurrences
  Place rates;                             // [n] learning rates
  float eps = 0;
  [[nodiscard]] TwoVecs vecs() const { return {removal, replacement}; }
};

// out += gate * (in - out)
struct Rwkv7MixOp {
  Place gate;  // [n]
};

// out += v * sum(r * k * weights) for each head of a recurrence.
struct Rwkv7BonusOp {
  int32_t weights = -1;  // vec [heads][keys]
  int32_t rec = -1;      // index into Program::recurrences
  [[nodiscard]] TwoVecs vecs() const { return {weights, -1}; }
};

// out = (add ? out : 0) + scale * values [in_col, in_col + n) of the token's row of a table.
struct RowsOp {
  int32_t table = -1;  // index into Program::tables
  bool add = false;
  float scale = 1;
};

// out = in, for each of `heads` groups of n values, in_step and out_step apart.
struct CopyOp {
  int32_t heads = 1, in_step = 0, out_step = 0;
};

// out = in * by
struct MulVecOp {
  int32_t by = -1;  // vec [n], or of one value
  [[nodiscard]] TwoVecs vecs() const { return {by, -1}; }
};

// out = W in, for each of `heads` groups, in_step and out_step apart, with a matrix [rows][n] of
// its own.
struct HeadMatmulOp {
  int32_t by_head = -1;  // index into Program::by_head
  int32_t heads = 1, in_step = 0, out_step = 0;
};

// Queries, the first n values of kQkv, grow with their position: HParams::temperature_scale.
struct TemperatureOp {};

// AltUp: each of the streams of n values in out += a mixture of all; in: weights
// [streams][streams] in kRouter.
struct MixStreamsOp {
  int32_t streams = 1;
};

// AltUp: each of the streams of n values in out += (1 + its weight) * (the values of in - those of
// the active stream). in_col is the weights' place in kRouter, out_col the active stream's in out.
struct CorrectStreamsOp {
  int32_t streams = 1;
};

// Each of `heads` groups of n values of out is scaled to the Euclidean norm of in.
struct MatchNormOp {
  int32_t heads = 1;
};

// out = max(0, out - (mean + deviations * standard deviation)), both of its n values.
struct SparsifyOp {
  float deviations = 0;
};

// Stores keys and values in kQkv: those of a source, for CrossOp.
struct StoreOp {
  AttentionShape att;
};

// kAtt = attention of a decoder's tokens to all of their source.
struct CrossOp {
  AttentionShape att;
  float scale = 0, softcap = 0;  // as AttentionOp's
};

// Their numbers, in the order of OpFields; web/gpu/program.ts has them too.
enum class OpKind : uint8_t {
  kEmbed,
  kNorm,
  kMatmul,
  kRope,
  kAttention,
  kActivate,
  kAdd,
  kMoe,
  kConv,
  kSelect,
  kSoftCap,
  kScale,
  kGate,
  kClamp,
  kPool,
  kUnary,
  kGated,
  kDecay,
  kShift,
  kLerp,
  kState,
  kScan,
  kRwkv7Keys,
  kRwkv7Mix,
  kRwkv7Bonus,
  kRows,
  kCopy,
  kMulVec,
  kHeadMatmul,
  kTemperature,
  kMixStreams,
  kCorrectStreams,
  kMatchNorm,
  kSparsify,
  kStore,
  kCross,
  kCount,
};

using OpFields =
    std::variant<EmbedOp, NormOp, MatmulOp, RopeOp, AttentionOp, ActivateOp, AddOp, MoeOp, ConvOp,
                 SelectOp, SoftCapOp, ScaleOp, GateOp, ClampOp, PoolOp, UnaryOp, GatedOp, DecayOp,
                 ShiftOp, LerpOp, StateOp, ScanOp, Rwkv7KeysOp, Rwkv7MixOp, Rwkv7BonusOp, RowsOp,
                 CopyOp, MulVecOp, HeadMatmulOp, TemperatureOp, MixStreamsOp, CorrectStreamsOp,
                 MatchNormOp, SparsifyOp, StoreOp, CrossOp>;
static_assert(std::variant_size_v<OpFields> == static_cast<size_t>(OpKind::kCount));
static_assert(std::is_trivially_copyable_v<OpFields>);

struct Op {
  int32_t layer = -1;  // -1: of none
  Buf in = Buf::kX, out = Buf::kX;
  int32_t in_col = 0, out_col = 0;
  int32_t n = 0;  // values of a row or of a group; what exactly says the kind
  OpFields fields;

  [[nodiscard]] OpKind kind() const { return static_cast<OpKind>(fields.index()); }
  template <typename T>
  [[nodiscard]] bool is() const {
    return std::holds_alternative<T>(fields);
  }
  // Its fields where it is of that kind; else null.
  template <typename T>
  [[nodiscard]] const T* get() const {
    return std::get_if<T>(&fields);
  }
  // The same of one that is known to be.
  template <typename T>
  [[nodiscard]] const T& as() const {
    const T* own = get<T>();
    if (own == nullptr) __builtin_trap();
    return *own;
  }
  template <typename T>
  [[nodiscard]] T& as() {
    return const_cast<T&>(std::as_const(*this).as<T>());
  }
  // The vecs that it reads, each once.
  [[nodiscard]] TwoVecs vecs() const;
  // What it carries on; null: nothing.
  [[nodiscard]] const Carried* carried() const;
};

}  // namespace sluice::model

// One operation of a forward pass: its input, its output, and a struct with what else its kind
// needs. The struct type is the kind, so no operation has unused fields. To add a kind, see
// README.md in this directory. Every buffer is [n_tokens][width] of f32, and columns count values.
// Vecs, mats, ropes and so on are indices into Program's lists; -1: none.
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
  kH,       // [n_embd] normed input of the next matrix multiplication
  kQkv,     // [n_head*dk + n_head_kv*dk + n_head_kv*dv] queries, keys, values
  kAtt,     // [n_head*dv] attention output
  kGateUp,  // [2*n_ff] gate and up; the activated product replaces the gate
  kT,       // [n_embd] a block's output before its post-norm
  kRouter,  // [4][n_expert] logits, then intermediate values for choosing experts
  kLogits,  // [n_vocab]
  kFirst,   // [n_embd] passed from the first layer to the others (RWKV 7's values)
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
  kClampedSwiglu,  // gpt-oss: g sigmoid(1.702 g) (u + 1), g at most 7, u clamped to [-7, 7]
  kGeluErf,
  kTanh,
  kReluSquaredMul,  // max(gate, 0)^2 * up
  kXielu,           // without up; ActivateOp::xielu
  kRelu,            // max(x, 0), without up
};
// Whether the activation has two inputs, gate and up, instead of one.
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
  int32_t factor = -1;  // vec of one value that scales all weights
};

// Head counts and sizes of an attention. kQkv holds its queries, then its keys, then its values.
struct AttentionShape {
  int32_t heads = 0, kv_heads = 0;  // query heads; KV heads
  int32_t dk = 0, dv = 0;           // values per query and key head; per value head
  int32_t cache = -1;  // layer whose KV cache is read; an earlier layer: shared, nothing is stored
  bool values_in_keys = false;  // a value head is the first dv values of its key head
  bool causal = true;  // false: sees the whole input, and windows extend to both sides; all layers
                       // then share one cache, which each overwrites

  // Whether a layer computes and stores keys and values (false: it reads another layer's cache).
  [[nodiscard]] bool owned_by(int64_t layer) const { return !causal || cache == layer; }
  [[nodiscard]] int32_t group() const { return heads / kv_heads; }  // query heads of a KV head
  [[nodiscard]] int32_t keys() const { return heads * dk; }         // column of the first key
  [[nodiscard]] int32_t values() const { return keys() + kv_heads * dk; }
};

// State that an operation carries from token to token.
struct Carried {
  int64_t size = 0, at = 0;  // f32 values, and their offset in the layer's state
};

// An operation's vecs, in the order in which it first reads them.
using TwoVecs = std::array<int32_t, 2>;

// --- The kinds. `in` and `out` are the operation's rows from in_col and out_col on, of n values
// unless stated otherwise.

// out = the token's row of the embedding * scale, + types, + the row of its position.
struct EmbedOp {
  int32_t positions = -1, types = -1;  // vecs [positions][n], [n]
  float scale = 1;
  bool scales_media = true;  // whether a picture's rows are scaled, too
  int32_t mode = -1;         // an approximate mode that completes the rows before they are scaled
  [[nodiscard]] TwoVecs vecs() const { return {positions, types}; }
};

// out = norm(in) * weight + bias, for each of `heads` groups of n values.
struct NormOp {
  int32_t weight = -1, bias = -1;  // vecs [n], or [heads][n]
  int32_t heads = 1;
  NormKind kind = NormKind::kRms;
  bool per_head = false;  // weight and bias are [heads][n]
  float eps = 0;          // 0: the model's
  float scale = 1;        // of kL2
  [[nodiscard]] TwoVecs vecs() const { return {weight, bias}; }
};

// out[part.out_col ..] = (add ? out : 0) + scale * (W in + bias), for each part.
struct MatmulOp {
  std::array<MatPart, 3> all{};
  int32_t n_parts = 0;
  bool add = false;
  float scale = 1;
  [[nodiscard]] std::span<const MatPart> parts() const {
    return {all.data(), static_cast<size_t>(n_parts)};
  }
};

// Applies RoPE to the queries in kQkv and to the layer's own keys; in_col is the first rotated
// value within each head.
struct RopeOp {
  int32_t rope = 0;
  AttentionShape att;
};

// Stores kQkv's keys and values if they are the layer's own. kAtt = the weighted mean of the values
// that each query sees; weights: softmax of softcap(scale * q k) - slope * distance + bias.
struct AttentionOp {
  int32_t sinks = -1;          // vec [heads]: an extra score per head, without a value
  int32_t relative_bias = -1;  // vec [bucket][heads], with `relative`
  int32_t relative = -1;       // index into Program::buckets
  AttentionShape att;
  float scale = 0;       // 0: 1 / sqrt(dk)
  float softcap = 0;     // softcap * tanh(x / softcap); 0: none
  float alibi = 0;       // ALiBi's largest bias, 0: none
  int32_t window = 0;    // sliding, in tokens; 0: none
  bool chunked = false;  // the window is the chunk of that length that contains the query
  int32_t rope = -1;     // RoPE of its queries and keys
  int32_t rope_col = 0;  // the first rotated value of each head
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

// In place: causal convolution over time for each of n channels, then `unary`. The carried state is
// the last taps - 1 inputs.
struct ConvOp {
  int32_t weights = -1, bias = -1;  // vecs [taps][n], [n]
  Unary unary = Unary::kNone;       // or kSilu
  Carried state;                    // [taps - 1][n]
  [[nodiscard]] TwoVecs vecs() const { return {weights, bias}; }
};

// Keeps only the rows of kX (n values each) whose logits are wanted; a batch without any ends here.
struct SelectOp {};

// out = cap * tanh(in / cap)
struct SoftCapOp {
  float cap = 1;
};

// out = scale * in; with scale 0, out = 0 whatever `in` holds.
struct ScaleOp {
  float scale = 1;
};

// out *= sigmoid(in): `heads` values of in, each for n / heads values of out.
struct GateOp {
  int32_t heads = 1;
};

// out = in, clamped to [-limit, limit].
struct ClampOp {
  float limit = 0;
};

// Pools the rows of each input in kH into one row of kX, or copies them all.
struct PoolOp {};

// out = unary(in)
struct UnaryOp {
  Unary unary = Unary::kNone;
};

// out = in * unary(gate), for `heads` groups of n values whose gates are `stride` apart. The gates
// are replaced by unary(gate).
struct GatedOp {
  Place gate;
  int32_t heads = 1, stride = 0;
  Unary unary = Unary::kNone;
};

// in = softplus(in + bias); out = exp(rate of the head * in)
struct DecayOp {
  int32_t bias = -1, rates = -1;  // vecs [n], [heads]
  int32_t heads = 1;
  [[nodiscard]] TwoVecs vecs() const { return {bias, rates}; }
};

// out = in of the previous token - in
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

// A linear recurrence over one matrix per head.
struct StateOp {
  int32_t given = -1;  // vec: the skip [heads]; for StateKind::kBonus the bonus [heads][keys]
  int32_t rec = -1;    // index into Program::recurrences, which has the inputs and the output
  Carried state;       // [heads][keys][values]
  [[nodiscard]] TwoVecs vecs() const { return {given, -1}; }
};

// Mamba's selective scan.
struct ScanOp {
  int32_t rates = -1, skip = -1;  // vecs: A [keys][values], D [values]
  int32_t rec = -1;               // index into Program::recurrences (inputs and output)
  Carried state;                  // [keys][values]
  [[nodiscard]] TwoVecs vecs() const { return {rates, skip}; }
};

// RWKV 7's removal and replacement keys, of n values; see session/rwkv.cpp.
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

// out = W in, for each of `heads` groups, in_step and out_step apart, each with its own matrix
// [rows][n].
struct HeadMatmulOp {
  int32_t by_head = -1;  // index into Program::by_head
  int32_t heads = 1, in_step = 0, out_step = 0;
};

// Scales queries (the first n values of kQkv) by position: HParams::temperature_scale.
struct TemperatureOp {};

// AltUp: each stream of n values in out += a mix of all streams; in: weights [streams][streams] in
// kRouter.
struct MixStreamsOp {
  int32_t streams = 1;
};

// AltUp: each stream of n values in out += (1 + its weight) * (in - the active stream). in_col is
// the column of the weights in kRouter, out_col that of the active stream in out.
struct CorrectStreamsOp {
  int32_t streams = 1;
};

// Scales each of `heads` groups of n values of out to the Euclidean norm of in.
struct MatchNormOp {
  int32_t heads = 1;
};

// out = max(0, out - (mean + deviations * standard deviation)), both over its n values.
struct SparsifyOp {
  float deviations = 0;
};

// Stores kQkv's keys and values (of the encoder's output) for CrossOp.
struct StoreOp {
  AttentionShape att;
};

// kAtt = cross-attention of the decoder's tokens to all of the encoder's.
struct CrossOp {
  AttentionShape att;
  float scale = 0, softcap = 0;  // as in AttentionOp
};

// Fills the KV cache as an attention does, and computes nothing else.
struct FillOp {
  AttentionOp attention;
};

// An operation of an approximate mode (session/approximation.h).
struct ApproximateOp {
  int32_t mode = 0;  // which
  int32_t step = 0;  // what it does, by the mode
  int32_t jump = 1;  // how many operations further the pass goes on, if the mode jumps
};

// The kinds' numbers, in the order of OpFields; web/gpu/program.ts has the same.
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
  kFill,
  kApproximate,
  kCount,
};

using OpFields =
    std::variant<EmbedOp, NormOp, MatmulOp, RopeOp, AttentionOp, ActivateOp, AddOp, MoeOp, ConvOp,
                 SelectOp, SoftCapOp, ScaleOp, GateOp, ClampOp, PoolOp, UnaryOp, GatedOp, DecayOp,
                 ShiftOp, LerpOp, StateOp, ScanOp, Rwkv7KeysOp, Rwkv7MixOp, Rwkv7BonusOp, RowsOp,
                 CopyOp, MulVecOp, HeadMatmulOp, TemperatureOp, MixStreamsOp, CorrectStreamsOp,
                 MatchNormOp, SparsifyOp, StoreOp, CrossOp, FillOp, ApproximateOp>;
static_assert(std::variant_size_v<OpFields> == static_cast<size_t>(OpKind::kCount));
static_assert(std::is_trivially_copyable_v<OpFields>);

struct Op {
  int32_t layer = -1;  // -1: not in a layer
  Buf in = Buf::kX, out = Buf::kX;
  int32_t in_col = 0, out_col = 0;
  int32_t n = 0;  // values per row or per group, see each kind
  OpFields fields;

  [[nodiscard]] OpKind kind() const { return static_cast<OpKind>(fields.index()); }
  template <typename T>
  [[nodiscard]] bool is() const {
    return std::holds_alternative<T>(fields);
  }
  // Its fields if it is of that kind; else null.
  template <typename T>
  [[nodiscard]] const T* get() const {
    return std::get_if<T>(&fields);
  }
  // Its fields; the kind must match.
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
  // The state that it carries; null: none.
  [[nodiscard]] const Carried* carried() const;
};

}  // namespace sluice::model

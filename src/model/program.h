// A forward pass as data: families write down their layers once as a list of operations over named
// buffers, and the session steps through the list. That is what lets a pass stop between any two
// units of weights without threads of control to suspend, and lets each family read like its paper.
// Every buffer is [n_tokens][width] of f32.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/kernels.h"
#include "model/hparams.h"

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

enum class OpKind : uint8_t {
  kEmbed,      // out = embedding row of each token * scale, + row `position` of vec0 if given
  kNorm,       // out = norm(in) over `heads` groups of n values from in_col to out_col
  kMatmul,     // out[out_col..] = (add ? out : 0) + scale * (W in + bias) for each part
  kRope,       // rotates queries and keys in kQkv
  kAttention,  // stores keys and values, out = attention
  kActivate,   // in place: gate = act(gate, up), or act(gate) without up
  kAdd,        // out += scale * in
  kMoe,        // out = (add ? out : 0) + scale * sum over chosen experts of weight * expert(in)
  kConv,       // causal convolution over time of each of n channels, in place: vec0 [taps][n]
  kSelect,     // keeps only the rows whose logits are wanted; a batch without any ends here
  kSoftCap,    // out = softcap * tanh(out / softcap)
  kScale,      // out *= scale
  kGate,       // out *= sigmoid(in): `heads` values of in, each for n / heads values of out
  kClamp,      // in place: n values are kept between -softcap and softcap
  kPool,       // one row of each text from its rows of kH, or each as it is, into kX

  // --- recurrent layers
  kUnary,       // out = unary(in)
  kGated,       // out = in * unary(gate), by heads whose gates lie `stride` apart
  kDecay,       // in = softplus(in + vec0); out = exp(vec1 of its head * in)
  kShift,       // out = the token before - in
  kLerp,        // out = in + gate * (vec0 + (add ? out : 0)), for each of `heads` rows of vec0
  kState,       // a linear recurrence over a matrix for each head: Program::recurrences
  kScan,        // Mamba's selective scan: Program::recurrences, vec0 A [state][n], vec1 D [n]
  kRwkv7Keys,   // RWKV 7's removal and replacement keys: see session/rwkv.cpp
  kRwkv7Mix,    // out += gate * (in - out)
  kRwkv7Bonus,  // out += v * sum(r * k * vec0) for each head of a recurrence

  kRows,        // out = (add ? out : 0) + scale * values [in_col, in_col + n) of the token's row of
                // `table`
  kCopy,        // `heads` groups of n values, in_step and out_step apart
  kMulVec,      // out = in * vec0, of n values or one
  kHeadMatmul,  // out = W in for each of `heads` groups, with a matrix of its own
  kTemperature,     // queries in kQkv grow with their position: HParams::temperature_scale
  kMixStreams,      // AltUp: each of `heads` streams of kX += a mixture of all, weights in kRouter
  kCorrectStreams,  // AltUp: each of them += (1 + its weight) * (in - the active one, at out_col)
  kMatchNorm,       // each of `heads` groups of out is scaled to the Euclidean norm of in
  kSparsify,        // out = max(0, out - (mean + scale * deviation)) of its n values

  kStore,  // stores keys and values in kQkv: those of a source, for kCross
  kCross,  // out = attention of a decoder's tokens to all of their source
};

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
  kXielu,           // without up; Op::xielu
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
  int32_t mat = -1;   // index into Program::mats
  int32_t bias = -1;  // index into Program::vecs
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

struct Op {
  OpKind kind = OpKind::kScale;
  int32_t layer = -1;
  Buf in = Buf::kX, out = Buf::kX;
  int32_t in_col = 0, out_col = 0;  // rope: in_col is where in each head the rotated values are
  int32_t in_step = 0, out_step = 0;
  int32_t n = 0, heads = 1;
  int32_t vec0 = -1, vec1 = -1;
  std::array<MatPart, 3> parts{};
  int32_t n_parts = 0;
  bool add = false;
  float scale = 1;
  NormKind norm = NormKind::kRms;
  Activation act = Activation::kSiluMul;
  kernels::Xielu xielu{};
  bool vec_per_head = false;  // norm: vec0 and vec1 are [heads][n] rather than [n]
  int32_t rope = 0;           // index into Program::ropes
  int32_t window = 0;         // attention: sliding window in tokens, 0 none
  bool chunked = false;       // the window is the query's own of the pieces of that length
  float alibi = 0;            // attention: ALiBi's greatest bias, 0 none; vec0: sinks [heads]
  int32_t relative = -1;      // attention: index into Program::buckets; vec1: biases [bucket][head]
  AttentionShape att;         // rope and attention
  Unary unary = Unary::kNone;
  Place gate;
  int32_t stride = 0;
  float eps = 0;                    // norm: 0 for the model's own
  int64_t state = 0, state_at = 0;  // f32 values that it carries on, and where in the layer's state
  int32_t rec = -1;                 // index into Program::recurrences
  int32_t moe = -1;                 // index into Program::moes
  int32_t table = -1;               // index into Program::tables
  int32_t by_head = -1;             // index into Program::by_head
  float softcap = 0;
};

// A weight matrix [rows][cols] in the file; the unit of residency is a run of its rows.
struct Mat {
  std::string name;
  kernels::Type type = kernels::Type::kF32;
  int64_t rows = 0, cols = 0;
  uint32_t file = 0;
  uint64_t offset = 0;  // of row 0 in the file, bytes
  int64_t row_bytes = 0;
  // Of the tensor: the row that is row 0 here, all of its rows, those of one expert or head.
  int64_t row0 = 0, tensor_rows = 0, slice_rows = 0;
  int32_t layer = -1;
  bool expert = false;  // read only when a token is routed to it
};

inline constexpr size_t kMaxTables = 4;

// A small tensor, always resident as f32: norm weights, biases, RoPE factors, positions.
struct Vec {
  std::string name;
  uint32_t file = 0;
  uint64_t offset = 0, bytes = 0;
  uint32_t type = 0;  // gguf::TensorType; F32, F16 or BF16
  int64_t n = 0;
  float add = 0;        // added to every value when loaded
  int64_t columns = 0;  // of rows in the file that lie transposed in memory, [columns][n / columns]
};

struct Rope {
  RopeHParams hp;
  int32_t factors_short = -1, factors_long = -1;  // vecs [n_rot/2]; llama-3's rope_freqs is short
};

// How a router's logits become the weights of the chosen experts.
enum class Gating : uint8_t {
  kSoftmax,        // over all experts; the most probable are chosen
  kSigmoid,        // of each
  kSoftmaxChosen,  // the largest logits are chosen, softmax over these
};

struct Moe {
  // Mats by expert: gate and up [n_ff][n_embd], down [n_embd][n_ff]. No gates: down(act(up(x))).
  std::vector<int32_t> gate, up, down;
  // Vecs, -1: none. Biases [n_expert][n_ff] (of down [n_expert][n_embd]) and factors [n_expert] of
  // the products.
  int32_t gate_bias = -1, up_bias = -1, down_bias = -1;
  int32_t gate_scale = -1, up_scale = -1, down_scale = -1;
  int32_t choice_bias = -1;  // vec [n_expert], added to choose, not to weigh
  int32_t n_expert = 0;      // logits
  int32_t n_used = 0, n_ff = 0;
  int32_t n_group = 1, n_group_used = 1;  // those with the best two experts are chosen from
  // Logits that stand for one expert here. It is weighed by the probability that has its number,
  // which is GroveMoE as GGUF files are run.
  int32_t shared_by = 1;
  Gating gating = Gating::kSoftmax;
  bool normalize = true;  // a token's weights are divided by their sum
  float weights_scale = 1;
  bool weigh_input = false;  // weights multiply what experts read, not what they give
  Activation act = Activation::kSiluMul;

  [[nodiscard]] std::array<int32_t, 7> vecs() const {
    return {gate_bias, up_bias, down_bias, gate_scale, up_scale, down_scale, choice_bias};
  }
};

// A recurrence over a state S [keys][values] of each head, from token to token; kernels.h says what
// each kind computes. `decay`, `beta` and the places of kGeneral are the arguments there; vec0 of
// the operation is the skip [heads], of kBonus the bonus [heads][keys]. Heads share r and k in
// groups. Mamba 2 (https://arxiv.org/abs/2405.21060) and RWKV 6 (2404.05892, kBonus) add to the
// state, the gated delta rule (2412.06464, kDelta) and RWKV 7 (2503.14456, kGeneral) replace.
struct Recurrence {
  kernels::StateKind kind = kernels::StateKind::kPlain;
  int32_t heads = 1, groups = 1;  // of values, of keys
  bool interleaved = false;      // head h has the keys of group h % groups, else h * groups / heads
  int32_t keys = 0, values = 0;  // of a head
  bool decay_per_key = false;
  Place r, k, v, decay, beta, a, b, out;
};

enum class MarkPart : uint8_t {
  kValue,       // the buffer as it is
  kAddend,      // what the operation added to the buffer
  kUnweighted,  // the RMS norm before its weight
};

// A named intermediate value for `sluice dump`, valid right after operation `op`.
struct Mark {
  int32_t op;
  const char* name;  // "Qcur"
  const char* kind;  // "ROPE"
  int32_t layer;     // -1: none in the name
  Buf buf;
  int32_t col, ne0, ne1;  // ne1 heads of ne0 values
  MarkPart part = MarkPart::kValue;
};

// What makes an embedding of a text's rows in kH, or its scores: operations behind those of a pass.
struct Tail {
  int32_t first = 0, end = 0;  // operations; none: the pooled row is the result
  Buf out = Buf::kX;
  int32_t width = 0;  // of a result; 0: the model has no such tail
};

struct Program {
  HParams hp;
  std::vector<Op> ops;
  std::vector<Mat> mats;
  std::vector<Vec> vecs;
  std::vector<Rope> ropes;
  std::vector<Moe> moes;
  std::vector<Recurrence> recurrences;
  std::vector<Mark> marks;
  std::array<int64_t, kBufCount> width{};
  int64_t max_context = kMaxContext;  // positions that the model can tell apart
  int32_t embedding = -1;             // mat, read by rows
  int32_t head = -1;                  // mat; == embedding when tied; -1: gives no logits
  // Mats of which a token reads a row, [n_vocab][...]: the embedding, then others, which are never
  // held in memory.
  std::vector<int32_t> tables;
  std::vector<std::vector<int32_t>> by_head;  // mats of kHeadMatmul

  // Whether a mat takes part by single rows alone.
  [[nodiscard]] bool by_rows(size_t mat) const {
    const auto is = [mat](int32_t m) { return m >= 0 && static_cast<size_t>(m) == mat; };
    return !is(head) && std::any_of(tables.begin(), tables.end(), is);
  }

  // Bucket of each distance from a query to a key, from -kRelativeReach on.
  using Buckets = std::array<uint8_t, 2 * kernels::kRelativeReach + 1>;
  std::vector<Buckets> buckets;

  // An encoder and a decoder: operations before `decoder` read a text, the source, whole, and leave
  // its keys and values in the decoder's layers; those from there on compute the tokens that answer
  // it. 0: there is no encoder.
  int32_t decoder = 0;

  // A pass for logits ends before operation `pool`. One for embeddings leaves after `hidden`
  // operations, when kH has a row of each token, pools them, and runs a tail.
  int32_t hidden = 0, pool = 0;
  Tail embed_tail, rank_tail;
  Pooling rank_pooling = Pooling::kCls;  // what the ranking head reads
  bool rank_softmax = false;             // scores are logits of classes

  std::vector<int32_t> skipped;  // layers that have nothing here: their output is their input
};

// Builds the program of the family that the header names, without the layers `skipped`, which are
// some of skippable_layers; checks every tensor's presence, type and shape. Errors: read_hparams',
// kMissingTensor, kBadShape, kUnsupportedType, naming the tensor.
[[nodiscard]] Result<Program> build_program(const gguf::Header& header,
                                            std::span<const int32_t> skipped = {});

}  // namespace sluice::model

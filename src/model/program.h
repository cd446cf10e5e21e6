// A forward pass as data: families define their layers as a list of operations over named buffers,
// and the session steps through the list. So a pass can stop between any two units of weights
// without a thread to suspend, and each family reads like its paper. Every buffer is
// [n_tokens][width] of f32.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"
#include "model/hparams.h"
#include "model/nextn.h"
#include "model/op.h"

namespace sluice::model {

// A weight matrix [rows][cols] in the file; a residency unit is a run of its rows.
struct Mat {
  std::string name;
  kernels::Type type = kernels::Type::kF32;
  int64_t rows = 0, cols = 0;
  uint32_t file = 0;
  uint64_t offset = 0;  // of row 0 in the file, bytes
  int64_t row_bytes = 0;
  // Row of the tensor that is row 0 here; rows of the tensor; rows of one expert or head in it.
  int64_t row0 = 0, tensor_rows = 0, slice_rows = 0;
  int32_t layer = -1;
  bool expert = false;  // read only on demand: experts, the MTP head, offloaded layers
  int32_t media = -1;   // mat in its place for the rows of pictures, read on demand; its share is 0
  bool plain = false;   // resident as it is in the file, so that rows can be gathered
  double share = 1;     // of its rows that a token multiplies; not of an expert's
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
  int64_t columns = 0;  // if > 0: rows of so many values are transposed to [columns][n / columns]
};

struct Rope {
  RopeHParams hp;
  int32_t factors_short = -1, factors_long = -1;  // vecs [n_rot/2]; llama-3's rope_freqs is short

  // Whether contexts of so many positions rotate by the long factors.
  [[nodiscard]] bool is_long(int64_t positions) const {
    return hp.scaling == RopeScaling::kLongRope && positions > hp.n_ctx_orig;
  }
};

// How a router's logits become the weights of the chosen experts.
enum class Gating : uint8_t {
  kSoftmax,        // over all experts; the most probable are chosen
  kSigmoid,        // of each logit
  kSoftmaxChosen,  // the largest logits are chosen, then softmax over these
};

struct Moe {
  // Mats by expert: gate and up [n_ff][n_embd], down [n_embd][n_ff]. No gates: down(act(up(x))).
  std::vector<int32_t> gate, up, down;
  // Vecs, -1: none. Biases [n_expert][n_ff] (down: [n_expert][n_embd]) and factors [n_expert] of
  // the matrix multiplications.
  int32_t gate_bias = -1, up_bias = -1, down_bias = -1;
  int32_t gate_scale = -1, up_scale = -1, down_scale = -1;
  int32_t choice_bias = -1;  // vec [n_expert]; affects the choice, not the weights
  int32_t n_expert = 0;      // logits
  int32_t n_used = 0, n_ff = 0;
  int32_t n_group = 1, n_group_used = 1;  // experts come from the groups with the best two experts
  // Number of logits that select one expert here. Its weight is the probability at its own index,
  // which is how GGUF files of GroveMoE are run.
  int32_t shared_by = 1;
  Gating gating = Gating::kSoftmax;
  bool normalize = true;  // divide a token's weights by their sum
  float weights_scale = 1;
  bool weigh_input = false;  // weights multiply the experts' inputs, not their outputs
  Activation act = Activation::kSiluMul;

  [[nodiscard]] std::array<int32_t, 7> vecs() const {
    return {gate_bias, up_bias, down_bias, gate_scale, up_scale, down_scale, choice_bias};
  }
};

// A recurrence over a state S [keys][values] per head, from token to token. kernels.h defines each
// kind; `decay`, `beta` and kGeneral's places are its arguments. Heads of a group share r and k.
// Mamba 2 (https://arxiv.org/abs/2405.21060) and RWKV 6 (2404.05892, kBonus) add to the state; the
// gated delta rule (2412.06464, kDelta) and RWKV 7 (2503.14456, kGeneral) replace values in it.
struct Recurrence {
  kernels::StateKind kind = kernels::StateKind::kPlain;
  int32_t heads = 1, groups = 1;  // value heads; groups of heads that share keys
  bool interleaved = false;       // head h is in group h % groups, else h * groups / heads
  int32_t keys = 0, values = 0;   // per head
  bool decay_per_key = false;
  Place r, k, v, decay, beta, a, b, out;
};

enum class MarkPart : uint8_t {
  kValue,       // the buffer as it is
  kAddend,      // what the operation added to the buffer
  kUnweighted,  // the RMS norm without its weight
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

// Operations after those of a pass that turn a pooled row into an embedding or scores.
struct Tail {
  int32_t first = 0, end = 0;  // operations; empty: the pooled row is the result
  Buf out = Buf::kX;
  int32_t width = 0;  // of the result; 0: the model has no such tail
};

// What approximate modes (session/approximation.h) change besides operations and matrices.
struct Approximated {
  bool changed = false;            // the logits are not those of the whole model
  uint64_t bytes = 0;              // that the modes hold
  uint64_t scratch = 0;            // bytes per thread that they need
  std::vector<uint64_t> identity;  // what saved states depend on
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
  int64_t max_context = kMaxContext;  // positions that the model can distinguish
  int32_t embedding = -1;             // mat, read by rows
  int32_t head = -1;                  // mat; == embedding if tied; -1: no logits
  // Mats of which each token reads a row, [n_vocab][...]: the embedding, then per-layer tables,
  // which are never resident.
  std::vector<int32_t> tables;
  std::vector<std::vector<int32_t>> by_head;  // mats of HeadMatmulOp

  // Whether a mat is only read row by row.
  [[nodiscard]] bool by_rows(size_t mat) const {
    const auto is = [mat](int32_t m) { return m >= 0 && static_cast<size_t>(m) == mat; };
    return !is(head) && std::any_of(tables.begin(), tables.end(), is);
  }

  // Bucket of each distance from query to key, from -kRelativeReach on.
  using Buckets = std::array<uint8_t, 2 * kernels::kRelativeReach + 1>;
  std::vector<Buckets> buckets;

  // Encoder-decoder models: operations before `decoder` run the encoder and fill the
  // cross-attention cache of the decoder's layers; those from there on run the decoder. 0: no
  // encoder.
  int32_t decoder = 0;

  // A pass for logits ends before operation `pool`. A pass for embeddings stops after `hidden`
  // operations, when kH has a row per token, pools them, and runs a tail.
  int32_t hidden = 0, pool = 0;
  Tail embed_tail, rank_tail;
  Pooling rank_pooling = Pooling::kCls;  // input of the ranking head
  bool rank_softmax = false;             // scores are class logits

  std::vector<int32_t> skipped;  // skipped layers: they have no operations
  Approximated approximated;
  Nextn nextn;  // the MTP head
};

// Builds the program of the family that the header names. `skipped` layers are
// omitted. Checks every tensor's presence, type and shape. Errors: read_hparams',
// kMissingTensor, kBadShape, kUnsupportedType, naming the tensor.
[[nodiscard]] Result<Program> build_program(const gguf::Header& header,
                                            std::span<const int32_t> skipped = {});

}  // namespace sluice::model

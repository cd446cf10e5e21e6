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
#include "gguf/embedding_clusters.h"
#include "model/early_exit.h"
#include "model/head_clusters.h"
#include "model/hparams.h"
#include "model/nextn.h"
#include "model/op.h"

namespace sluice::model {

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
  bool expert = false;  // read only when a token is routed to it, or a guess is made
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
// each kind computes. `decay`, `beta` and the places of kGeneral are the arguments there. Heads
// share r and k in groups. Mamba 2 (https://arxiv.org/abs/2405.21060) and RWKV 6 (2404.05892,
// kBonus) add to the state, the gated delta rule (2412.06464, kDelta) and RWKV 7 (2503.14456,
// kGeneral) replace.
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

// See gguf/embedding_clusters.h.
struct RowCentres {
  std::vector<uint8_t> of, centres;

  [[nodiscard]] uint64_t bytes() const { return of.size() + centres.size(); }
  [[nodiscard]] gguf::EmbeddingClusters view(int64_t cols) const {
    return {of, centres, static_cast<uint64_t>(cols)};
  }
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
  std::vector<std::vector<int32_t>> by_head;  // mats of HeadMatmulOp

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
  HeadClusters head_clusters;    // where not all of the head is multiplied
  RowCentres centres;            // of the embedding's rows, where its mat has but their rest
  EarlyExits exits;              // where tokens may leave before the last layer
  Nextn nextn;                   // what guesses the token after the next
};

// Builds the program of the family that the header names, without the layers `skipped`, which are
// some of skippable_layers; checks every tensor's presence, type and shape. Errors: read_hparams',
// kMissingTensor, kBadShape, kUnsupportedType, naming the tensor.
[[nodiscard]] Result<Program> build_program(const gguf::Header& header,
                                            std::span<const int32_t> skipped = {});

}  // namespace sluice::model

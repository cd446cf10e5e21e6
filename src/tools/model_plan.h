// What a made model contains: the published shapes by name, and from a shape and a type the list of
// tensors, each with its type, in the order and with the mixture that llama-quantize would write.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/gguf.h"
#include "tools/made_vocabulary.h"

namespace sluice::tools {

// The recurrent part of layers: Mamba 2 beside attention (falcon-h1), or the gated delta rule in
// all layers but every `interval`-th (qwen35).
struct RecurrentShape {
  uint32_t inner = 0, state = 0, heads = 0, groups = 0;  // 0: there is none
  uint32_t taps = 4, interval = 0;
};

class Planner;

struct Shape {
  std::string name;
  std::string arch;  // of the metadata
  uint32_t n_layer, n_embd, n_head, n_head_kv, head_dim, n_ff, n_vocab, n_ctx;
  uint32_t n_expert = 0, n_expert_used = 0;  // > 0: a mixture in each layer; not arch qwen3
  uint32_t n_ff_expert = 0;                  // an expert's feed-forward size; 0: n_ff
  bool tied = false;                         // the output head is the embedding
  bool nextn = false;  // one more layer predicts further tokens, from the embedding it is given
  float rms_eps = 1e-5f, rope_freq_base = 10000.0f;
  bool llama3_rope = false;  // rope_freqs.weight, as Llama 3.1 and later
  VocabularyKind vocabulary = VocabularyKind::kSentencePiece;
  uint32_t n_rot = 0;  // rotated values of a head; 0: all
  RecurrentShape recurrent = {};
  uint32_t n_dense = 0;    // layers before those with a mixture
  uint32_t value_dim = 0;  // of a value head; 0: head_dim
  // Whether add_keys says those keys: by layer, or of layers with a window apart.
  bool lists_kv_heads = false, two_attentions = false;
  // Where a family has parts of its own: planner.h. Null: model_plan.cpp does it.
  void (*plan)(Planner* plan, const Shape& shape, uint32_t layer) = nullptr;
  void (*plan_globals)(Planner* plan, const Shape& shape) = nullptr;
  void (*add_keys)(GgufWriter* writer, const Shape& shape) = nullptr;
};

[[nodiscard]] std::span<const Shape> shapes();

// A file type: one block type for all matrices, or one of llama-quantize's mixtures.
struct FileType {
  std::string_view name;
  gguf::TensorType type;   // of most matrices
  gguf::TensorType heads;  // of the output head (the embedding where tied)
  bool more_bits;          // _M mixtures: half of attn_v and ffn_down take Q6_K
  uint32_t ftype;          // general.file_type
};

[[nodiscard]] std::span<const FileType> file_types();

struct PlannedTensor {
  std::string name;
  gguf::TensorType type;
  std::vector<uint64_t> ne;  // ne[0] is contiguous
  float sigma, mean;         // of the weights
  bool picks = false;        // F32: row i is 1 in column i, and 0 elsewhere
  uint64_t n_weights = 0, bytes = 0;
};

// Every tensor but rope_freqs, in file order. `pure` gives the head the common type too.
[[nodiscard]] std::vector<PlannedTensor> plan_tensors(const Shape& shape, const FileType& type,
                                                      bool pure);

// Its blocks [first, first + n), of a stream that is the seed's and theirs.
void fill_blocks(const PlannedTensor& tensor, uint64_t first, uint64_t n, uint64_t seed,
                 uint8_t* out);

// The llama3 factors by which RoPE frequencies are divided, head_dim / 2 of them.
[[nodiscard]] std::vector<float> llama3_rope_factors(const Shape& shape);

// The general.* and architecture keys.
void add_hyperparameters(GgufWriter* writer, const Shape& shape, const FileType& type);

}  // namespace sluice::tools

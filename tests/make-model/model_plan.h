// What a synthetic model contains: published shapes by name, and the tensors of a shape and file
// type, in the order and with the types that llama-quantize would write.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/gguf.h"
#include "tests/make-model/made_vocabulary.h"

namespace sluice::make_model {

// Recurrent parts of layers: Mamba 2 beside attention (falcon-h1), or the gated delta rule in all
// layers except every `interval`-th (qwen35).
struct RecurrentShape {
  uint32_t inner = 0, state = 0, heads = 0, groups = 0;  // 0: none
  uint32_t taps = 4, interval = 0;
};

class Planner;

// The vision projector of a shape.
struct VisionShape {
  const char* type;  // clip.projector_type
  uint32_t n_layer, n_embd, n_head, n_ff, patch_size, image_size;
  uint32_t merge;             // patches a side of a token
  uint32_t longest_side = 0;  // of a picture that is cut into tiles
  bool merge_norms = false;   // Qwen 3 VL's: fused queries, keys and values, two patch matrices
  std::vector<uint32_t> deepstack = {};  // blocks with parts for the text model's first layers
};

struct Shape {
  std::string name;
  std::string arch;  // architecture in the metadata
  uint32_t n_layer, n_embd, n_head, n_head_kv, head_dim, n_ff, n_vocab, n_ctx;
  // > 0: mixture of experts in each layer; not for arch qwen3.
  uint32_t n_expert = 0, n_expert_used = 0;
  uint32_t n_ff_expert = 0;  // feed-forward size of an expert; 0: n_ff
  bool tied = false;         // the embedding is the output head
  bool nextn = false;        // adds a multi-token prediction layer
  float rms_eps = 1e-5f, rope_freq_base = 10000.0f;
  bool llama3_rope = false;  // rope_freqs.weight, as Llama 3.1 and later
  VocabularyKind vocabulary = VocabularyKind::kSentencePiece;
  uint32_t n_rot = 0;  // rotated values per head; 0: all
  RecurrentShape recurrent = {};
  uint32_t n_dense = 0;    // dense layers before those with experts
  uint32_t value_dim = 0;  // size of a value head; 0: head_dim
  // Keys that add_keys writes itself: KV heads by layer; settings of layers with a window.
  bool lists_kv_heads = false, two_attentions = false;
  const VisionShape* vision = nullptr;  // null: no projector
  // Hooks for families with special parts (planner.h); null: handled by model_plan.cpp.
  void (*plan)(Planner* plan, const Shape& shape, uint32_t layer) = nullptr;
  void (*plan_globals)(Planner* plan, const Shape& shape) = nullptr;
  void (*add_keys)(GgufWriter* writer, const Shape& shape) = nullptr;
};

[[nodiscard]] std::span<const Shape> shapes();

// A file type: one block type for all matrices, or one of llama-quantize's mixes.
struct FileType {
  std::string_view name;
  gguf::TensorType type;   // type of most matrices
  gguf::TensorType heads;  // type of the output head (the embedding if tied)
  bool more_bits;          // _M mixes: half of attn_v and ffn_down get Q6_K
  uint32_t ftype;          // general.file_type
};

[[nodiscard]] std::span<const FileType> file_types();

struct PlannedTensor {
  std::string name;
  gguf::TensorType type;
  std::vector<uint64_t> ne;  // ne[0] is contiguous
  float sigma, mean;         // standard deviation and mean of the weights
  bool picks = false;        // F32: row i is 1 in column i and 0 elsewhere
  uint64_t n_weights = 0, bytes = 0;
};

// All tensors except rope_freqs, in file order. `pure` gives the head the common type too.
[[nodiscard]] std::vector<PlannedTensor> plan_tensors(const Shape& shape, const FileType& type,
                                                      bool pure);

// Fills blocks [first, first + n) from a random stream given by the seed, the tensor and the place.
void fill_blocks(const PlannedTensor& tensor, uint64_t first, uint64_t n, uint64_t seed,
                 uint8_t* out);

// The tensors of the shape's vision projector; positions and patches stay F32 and F16.
[[nodiscard]] std::vector<PlannedTensor> plan_projector(const Shape& shape, const FileType& type);
void add_projector_keys(GgufWriter* writer, const Shape& shape, const FileType& type);

// The head_dim / 2 factors by which llama3 RoPE divides frequencies.
[[nodiscard]] std::vector<float> llama3_rope_factors(const Shape& shape);

// Adds the general.* and architecture keys.
void add_hyperparameters(GgufWriter* writer, const Shape& shape, const FileType& type);

}  // namespace sluice::make_model

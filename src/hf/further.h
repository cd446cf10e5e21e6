// Families whose checkpoints are described by tables: the names of tensors, how to transform them,
// and how to read their sizes from config.json.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "hf/config_fields.h"
#include "hf/model.h"

namespace sluice::hf {

// How a tensor is transformed. "a|b" in a name stands for two tensors.
enum class TensorTransform : uint8_t {
  kNone,
  kSkip,         // unused
  kHalves,       // "a|b": the first half of each matrix's rows is a, the second b
  kPairs,        // "a|b": even values are a, odd ones b
  kMxfp4,        // MXFP4 blocks; the scales are the tensor "..._scales" beside "..._blocks"
  kMxfp4Pairs,   // "a|b": blocks of even rows are a, of odd ones b
  kNegativeExp,  // the state's decay from its logarithm, with value heads reordered
  kValueRows,    // rows of value heads reordered
  kMixedRows,    // the same, after the rows of queries and keys
  kValueColumns,
  kStack,  // tensors with the numbers 0, 1, ... in their names become one
  kPad,    // padded with rows of zeros up to the vocabulary
  kTail,   // without the first rows, which are unused
};

struct Name {
  // Names without the layer. Without .weight or .bias, the name stands for both.
  std::string_view theirs, ours;
  TensorTransform turn = TensorTransform::kNone;
};

// Values of config.json that the transforms need.
struct Facts {
  int64_t n_vocab = 0;
  int64_t key_heads = 0, value_heads = 0, key_size = 0;  // of the delta rule
  int64_t skipped_rows = 0;                              // of the position embedding
  bool tied = false;
  bool one_ffn = false;  // the tensors of a shared expert are the FFN
  bool scores = false;   // a reranker: the pooler and the classifier are used
  std::vector<float> rope_factors = {};
};

struct Further {
  std::string_view model_type;  // of config.json; also with "_text" appended
  // general.architecture, which may depend on config.json.
  std::string_view (*arch)(const Json& config);
  std::span<const std::string_view> skipped;   // prefixes of the names of unused tensors
  std::span<const std::string_view> prefixes;  // of the other names; the first match is removed
  std::string_view layers;                     // the text before a layer's number
  std::span<const Name> whole, of_layer;
  void (*read)(ConfigFields& fields, gguf::MetadataWriter* out, Facts* facts);
};

// A tensor's name in GGUF.
struct Found {
  std::string ours;  // "a|b" for two tensors; empty: unknown
  TensorTransform turn = TensorTransform::kNone;
  uint32_t number = 0;  // in a stack
};
[[nodiscard]] Found find_name(const Further& family, std::string_view name);

// The family of a config; null if it is not in a table.
[[nodiscard]] const Further* find_further(const Json& config);
// describe_model for these families.
[[nodiscard]] Result<Model> describe_further(const Further& family, const Directory& directory,
                                             const Json& config);

// The tables.
extern const Further kQwen35, kQwen35Moe, kGemma3n, kGemma4, kGraniteHybrid, kGptOss, kBert,
    kXlmRoberta, kNomicBert, kModernBert;

}  // namespace sluice::hf

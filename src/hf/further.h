// Families whose checkpoints are described by tables of names: what their tensors are called, what
// has to be done with them, and how config.json says their sizes.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "hf/config_fields.h"
#include "hf/model.h"

namespace sluice::hf {

// What becomes of a tensor.
enum class TensorTransform : uint8_t {
  kNone,
  kSkip,         // it takes no part
  kHalves,       // "a|b": the first half of each matrix's rows is a, the second b
  kPairs,        // "a|b": even values are a, odd ones b
  kMxfp4,        // blocks; scales are the tensor "..._scales" beside "..._blocks"
  kMxfp4Pairs,   // "a|b": blocks of even rows are a, of odd ones b
  kNegativeExp,  // the state's decay from its logarithm, heads of values ordered
  kValueRows,    // rows of heads of values ordered
  kMixedRows,    // the same behind queries and keys
  kValueColumns,
  kStack,  // tensors with the number 0 and so on in their names are one
  kPad,    // rows of zeros up to the vocabulary
  kTail,   // the first rows are nobody's
};

struct Name {
  // Without the layer; without the ending too, where that is .weight or .bias and none is given.
  std::string_view theirs, ours;
  TensorTransform turn = TensorTransform::kNone;
};

// What the tensors' turns need to know of config.json.
struct Facts {
  int64_t n_vocab = 0;
  int64_t key_heads = 0, value_heads = 0, key_size = 0;  // of the delta rule
  int64_t skipped_rows = 0;                              // of positions
  bool tied = false;
  bool one_ffn = false;  // what is a shared expert elsewhere is the FFN
  bool scores = false;   // a reranker: the pooler and what is behind it are used
  std::vector<float> rope_factors = {};
};

struct Further {
  std::string_view model_type;  // of config.json; with "_text" too
  // general.architecture, which config.json may choose.
  std::string_view (*arch)(const Json& config);
  std::span<const std::string_view> skipped;   // beginnings of names of tensors that are not used
  std::span<const std::string_view> prefixes;  // of the others' names; the first that fits goes
  std::string_view layers;                     // before a layer's number
  std::span<const Name> whole, of_layer;
  void (*read)(ConfigFields& fields, gguf::MetadataWriter* out, Facts* facts);
};

// A tensor's name in GGUF.
struct Found {
  std::string ours;  // "a|b" where there are two; empty: unknown
  TensorTransform turn = TensorTransform::kNone;
  uint32_t number = 0;  // of a stack
};
[[nodiscard]] Found find_name(const Further& family, std::string_view name);

// Null when there is none.
[[nodiscard]] const Further* find_further(const Json& config);
// The rest of describe_model.
[[nodiscard]] Result<Model> describe_further(const Further& family, const Directory& directory,
                                             const Json& config);

// The tables.
extern const Further kQwen35, kQwen35Moe, kGemma3n, kGemma4, kGraniteHybrid, kGptOss, kBert,
    kXlmRoberta, kNomicBert, kModernBert;

}  // namespace sluice::hf

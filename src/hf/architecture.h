// The architectures of checkpoints, one table (hf/architectures.cpp). An architecture has a field
// map, which says what becomes of config.json, and a tensor map, which says what becomes of names
// and how tensors are transformed.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "hf/config_reader.h"
#include "hf/model.h"

namespace sluice::hf {

// --- fields

// One or several metadata keys, made from config.json. Fields are written in the map's order.
struct Field {
  const char* ours = nullptr;     // key in GGUF, without the architecture
  const char* theirs = nullptr;   // key in config.json
  double fallback = -1;           // where it is missing; below 0: it is required
  const char* instead = nullptr;  // the key whose value is the fallback; null: the number above
  bool real = false;              // not a whole number
  int64_t (*computed)(ConfigReader& r) = nullptr;  // the value, where it is no plain key
  void (*read)(ConfigReader& r) = nullptr;         // checks, or writes keys by itself
  const Field* group = nullptr;                    // more fields
  size_t n_group = 0;
};
constexpr Field size_of(const char* ours, const char* theirs, int64_t fallback = -1) {
  return {.ours = ours, .theirs = theirs, .fallback = static_cast<double>(fallback)};
}
constexpr Field size_or(const char* ours, const char* theirs, const char* instead) {
  return {.ours = ours, .theirs = theirs, .instead = instead};
}
constexpr Field real_of(const char* ours, const char* theirs, double fallback) {
  return {.ours = ours, .theirs = theirs, .fallback = fallback, .real = true};
}
constexpr Field computed(const char* ours, int64_t (*value)(ConfigReader& r)) {
  return {.ours = ours, .computed = value};
}
constexpr Field read_by(void (*read)(ConfigReader& r)) {
  return {.read = read};
}
template <size_t n>
constexpr Field all_of(const Field (&group)[n]) {
  return {.group = group, .n_group = n};
}

// Writes the fields. Errors: those of the reader, which keeps them.
void read_fields(std::span<const Field> fields, ConfigReader& r);

// --- tensors

// How a tensor is transformed. "a|b" in a name stands for two tensors, "a|b|c" for three.
enum class TensorTransform : uint8_t {
  kNone,
  kSkip,         // unused
  kHalves,       // "a|b": the first half of each matrix's rows is a, the second b
  kThirds,       // "a|b|c": the same with three matrices or vectors
  kFrames,       // "a|b": a convolution over two frames, as one for each
  kDeepstack,    // one of a list; its number becomes that of the block it belongs to
  kPairs,        // "a|b": even values are a, odd ones b
  kMxfp4,        // MXFP4 blocks; the scales are the tensor "..._scales" beside "..._blocks"
  kMxfp4Pairs,   // "a|b": blocks of even rows are a, of odd ones b
  kNegativeExp,  // the state's decay from its logarithm, with value heads reordered
  kPlusOne,      // a norm's weight that is stored as w - 1
  kValueRows,    // rows of value heads reordered
  kMixedRows,    // the same, after the rows of queries and keys
  kValueColumns,
  kStack,  // tensors with the numbers 0, 1, ... in their names become one
  kPad,    // padded with rows of zeros up to the vocabulary
  kTail,   // without the first rows, which are unused
};

struct Name {
  // Names without the layer. Without .weight or .bias, the name stands for both. "#" is a number.
  std::string_view theirs, ours;
  TensorTransform turn = TensorTransform::kNone;
};

// One list of several.
template <size_t... n>
constexpr std::array<Name, (n + ...)> joined(const Name (&... parts)[n]) {
  std::array<Name, (n + ...)> out{};
  size_t at = 0;
  const auto add = [&](const auto& part) {
    for (const Name& name : part) out[at++] = name;
  };
  (add(parts), ...);
  return out;
}

struct TensorMap {
  std::span<const std::string_view> skipped;   // prefixes of the names of unused tensors
  std::span<const std::string_view> prefixes;  // of the other names; the first match is removed
  std::string_view layers = "layers.";         // the text before a layer's number
  std::span<const Name> whole, of_layer;
  std::string_view our_layers = "blk.";
  bool only_prefixed = false;  // tensors without any of the prefixes are another model's
  // Tensors keep the order of the files; otherwise they are sorted by name.
  bool in_file_order = false;
};

// The map of a vision projector, in a file with its text model.
constexpr TensorMap vision_tensors(std::span<const std::string_view> skipped,
                                   std::span<const std::string_view> prefixes,
                                   std::string_view layers, std::span<const Name> whole,
                                   std::span<const Name> of_layer) {
  return {.skipped = skipped,
          .prefixes = prefixes,
          .layers = layers,
          .whole = whole,
          .of_layer = of_layer,
          .our_layers = "v.blk.",
          .only_prefixed = true,
          .in_file_order = true};
}

// A tensor's name in GGUF.
struct Found {
  std::string ours;  // "a|b" for two tensors; empty: unknown
  TensorTransform turn = TensorTransform::kNone;
  uint32_t number = 0;  // in a stack
};
[[nodiscard]] Found find_name(const TensorMap& map, std::string_view name);

// --- the table

struct Traits {
  bool tied = false;   // embeddings are tied unless the config says otherwise
  bool inner = false;  // also as MODEL_TYPE_text, or in the text_config of a larger model
  std::string_view quantization = {};                         // the quant_method that it may have
  std::string_view (*name_of)(const Json& config) = nullptr;  // if it depends on config.json
  const char* defaults = nullptr;  // JSON: values that config.json may lack
};

struct Architecture {
  std::string_view model_type;  // of config.json
  std::string_view name;        // general.architecture
  const TensorMap* tensors;
  const std::span<const Field>* fields;
  Traits traits = {};
};

[[nodiscard]] std::span<const Architecture> architectures();
// Vision projectors; Architecture::name is clip.projector_type.
[[nodiscard]] std::span<const Architecture> projector_architectures();

// Adds all tensors to the model's header. Errors: kBadHeader, kBadShape, kMissingTensor,
// kUnsupportedType, kUnsupportedArchitecture for a tensor that is not in the map.
[[nodiscard]] Status read_tensors(const Architecture& architecture, const Facts& facts,
                                  const Directory& from, Model* model,
                                  gguf::MetadataWriter* writer);

// The maps, each in the file of its architecture.
extern const TensorMap kLlamaTensors, kGemmaTensors, kGemma2Tensors, kLfm2Tensors, kQwen35Tensors,
    kGemma3nTensors, kGraniteTensors, kGptOssTensors, kBertTensors, kXlmRobertaTensors,
    kNomicBertTensors, kModernBertTensors, kQwenVlTensors, kIdeficsTensors;
extern const std::span<const Field> kLlamaFields, kMistralFields, kSmollm3Fields, kGemmaFields,
    kGemma2Fields, kGemma3Fields, kLfm2Fields, kLfm2MoeFields, kQwen35Fields, kQwen35MoeFields,
    kGemma3nFields, kGemma4Fields, kGraniteFields, kGptOssFields, kBertFields, kXlmRobertaFields,
    kNomicBertFields, kModernBertFields, kQwen25VlFields, kQwen3VlFields;
// Of projectors. Their fields read the vision_config, which has the whole config.json as kWhole and
// preprocessor_config.json as kPreprocessor.
inline constexpr const char *kWhole = "_whole", *kPreprocessor = "_preprocessor";
extern const TensorMap kQwen25VisionTensors, kQwen3VisionTensors, kGemma3VisionTensors,
    kIdeficsVisionTensors;
extern const std::span<const Field> kQwen25VisionFields, kQwen3VisionFields, kGemma3VisionFields,
    kIdeficsVisionFields;
[[nodiscard]] std::string_view gemma3_name(const Json& config);
[[nodiscard]] std::string_view granite_name(const Json& config);

// --- parts of maps that several architectures have

// The tensors outside the layers of most decoders.
inline constexpr Name kDecoderWhole[] = {
    {"embed_tokens", "token_embd"}, {"norm", "output_norm"}, {"lm_head", "output"}};
// Of a layer: the norm before attention and its projections, and what dense decoders also have.
inline constexpr Name kAttentionNames[] = {{"input_layernorm", "attn_norm"},
                                           {"self_attn.q_proj", "attn_q"},
                                           {"self_attn.k_proj", "attn_k"},
                                           {"self_attn.v_proj", "attn_v"},
                                           {"self_attn.o_proj", "attn_output"}};
inline constexpr Name kDenseNames[] = {{"self_attn.q_norm", "attn_q_norm"},
                                       {"self_attn.k_norm", "attn_k_norm"},
                                       {"mlp.gate_proj", "ffn_gate"},
                                       {"mlp.up_proj", "ffn_up"},
                                       {"mlp.down_proj", "ffn_down"}};
inline constexpr std::string_view kModelPrefix[] = {"model."};
inline constexpr Field kLayers = size_of("block_count", "num_hidden_layers");
inline constexpr Field kDecoderFields[] = {
    size_of("embedding_length", "hidden_size"),
    kLayers,
    size_of("attention.head_count", "num_attention_heads"),
    real_of("attention.layer_norm_rms_epsilon", "rms_norm_eps", 1e-6),
};
inline constexpr Field kDenseFields[] = {
    size_of("context_length", "max_position_embeddings"),
    size_of("embedding_length", "hidden_size"),
    kLayers,
    size_of("attention.head_count", "num_attention_heads"),
    size_of("feed_forward_length", "intermediate_size"),
    size_or("attention.head_count_kv", "num_key_value_heads", "num_attention_heads"),
};
// The RoPE of dense decoders (arch_llama.cpp): the base, that of layers with a window, and all
// supported scalings.
void read_dense_rope(ConfigReader& r, int64_t head_dim, double base,
                     std::optional<double> local = {});
// Checks what all dense decoders share, but for the activation.
void check_dense(ConfigReader& r);
// The window of layers that have one.
void read_window(ConfigReader& r);
[[nodiscard]] int64_t head_dim(ConfigReader& r);

}  // namespace sluice::hf

// The table of architectures, and how a field map is read.
#include "hf/architecture.h"

namespace sluice::hf {
namespace {

// Of transformers' Gemma3TextConfig, which published configs rely on.
constexpr const char* kGemma3Defaults =
    R"({"vocab_size":262208,"num_attention_heads":8,"num_key_value_heads":4,)"
    R"("max_position_embeddings":131072})";

constexpr Architecture kArchitectures[] = {
    {"llama", "llama", &kLlamaTensors, &kLlamaFields},
    {"mistral", "mistral", &kLlamaTensors, &kMistralFields},
    {"smollm3", "smollm3", &kLlamaTensors, &kSmollm3Fields, {.tied = true}},
    {"qwen2", "qwen2", &kLlamaTensors, &kLlamaFields},
    {"qwen3", "qwen3", &kLlamaTensors, &kLlamaFields},
    {"lfm2", "lfm2", &kLfm2Tensors, &kLfm2Fields, {.tied = true}},
    {"lfm2_moe", "lfm2moe", &kLfm2Tensors, &kLfm2MoeFields, {.tied = true}},
    {"gemma", "gemma", &kGemmaTensors, &kGemmaFields, {.tied = true}},
    {"gemma2", "gemma2", &kGemma2Tensors, &kGemma2Fields, {.tied = true}},
    {"gemma3",
     "gemma3",
     &kGemma2Tensors,
     &kGemma3Fields,
     {.tied = true, .inner = true, .name_of = gemma3_name, .defaults = kGemma3Defaults}},
    {"qwen2_5_vl", "qwen2vl", &kQwenVlTensors, &kQwen25VlFields, {.inner = true}},
    {"qwen3_vl", "qwen3vl", &kQwenVlTensors, &kQwen3VlFields, {.inner = true}},
    {"smolvlm", "llama", &kIdeficsTensors, &kLlamaFields, {.inner = true}},
    {"idefics3", "llama", &kIdeficsTensors, &kLlamaFields, {.inner = true}},
    {"qwen3_5", "qwen35", &kQwen35Tensors, &kQwen35Fields, {.inner = true}},
    {"qwen3_5_moe", "qwen35moe", &kQwen35Tensors, &kQwen35MoeFields, {.inner = true}},
    {"gemma3n", "gemma3n", &kGemma3nTensors, &kGemma3nFields, {.inner = true}},
    {"gemma4", "gemma4", &kGemma3nTensors, &kGemma4Fields, {.inner = true}},
    {"granitemoehybrid",
     "granitehybrid",
     &kGraniteTensors,
     &kGraniteFields,
     {.tied = true, .name_of = granite_name}},
    {"gpt_oss", "gpt-oss", &kGptOssTensors, &kGptOssFields, {.quantization = "mxfp4"}},
    {"bert", "bert", &kBertTensors, &kBertFields},
    {"xlm-roberta", "bert", &kXlmRobertaTensors, &kXlmRobertaFields},
    {"nomic_bert", "nomic-bert", &kNomicBertTensors, &kNomicBertFields},
    {"modernbert", "modern-bert", &kModernBertTensors, &kModernBertFields},
};

constexpr Architecture kProjectors[] = {
    {"qwen2_5_vl", "qwen2.5vl_merger", &kQwen25VisionTensors, &kQwen25VisionFields},
    {"qwen3_vl", "qwen3vl_merger", &kQwen3VisionTensors, &kQwen3VisionFields},
    {"gemma3", "gemma3", &kGemma3VisionTensors, &kGemma3VisionFields},
    {"smolvlm", "idefics3", &kIdeficsVisionTensors, &kIdeficsVisionFields},
    {"idefics3", "idefics3", &kIdeficsVisionTensors, &kIdeficsVisionFields},
};

void read_field(const Field& field, ConfigReader& r) {
  if (field.read != nullptr) return field.read(r);
  if (field.group != nullptr) return read_fields({field.group, field.n_group}, r);
  if (field.real) return r.put(field.ours, r.real(r.config(), field.theirs, field.fallback));
  if (field.computed != nullptr) return r.put(field.ours, field.computed(r));
  const auto fallback =
      field.instead != nullptr ? r.size(field.instead) : static_cast<int64_t>(field.fallback);
  const int64_t value = r.size(field.theirs, fallback);
  if (std::string_view(field.ours) == kLayers.ours) {
    if (value > kMaxConfigLayers) return r.impossible(field.theirs);
    r.facts.n_layer = value;
  }
  r.put(field.ours, value);
}

}  // namespace

std::span<const Architecture> architectures() {
  return kArchitectures;
}

std::span<const Architecture> projector_architectures() {
  return kProjectors;
}

void read_fields(std::span<const Field> fields, ConfigReader& r) {
  for (const Field& field : fields) {
    if (r.status().ok()) read_field(field, r);
  }
}

}  // namespace sluice::hf

// Parses PEFT adapters: https://huggingface.co/docs/peft/developer_guides/checkpoint.
#include <cmath>

#include "adapter/adapter.h"
#include "adapter/pairs.h"
#include "gguf/printable.h"
#include "hf/config.h"
#include "hf/json.h"
#include "hf/safetensors.h"

namespace sluice::adapter {
namespace {

using gguf::printable;
using hf::Json;

constexpr const char* kConfig = "adapter_config.json";
constexpr const char* kTensors = "adapter_model.safetensors";

// Unsupported options: with them an adapter is more than plain LoRA.
constexpr const char* kRefused[] = {"use_dora",
                                    "use_qalora",
                                    "lora_bias",
                                    "fan_in_fan_out",
                                    "alpha_pattern",
                                    "modules_to_save",
                                    "arrow_config",
                                    "target_parameters",
                                    "trainable_token_indices",
                                    "layer_replication",
                                    "alora_invocation_tokens"};

// null, false, "" and empty lists count as absent.
bool is_set(const Json* value) {
  if (value == nullptr || value->is_null()) return false;
  if (value->is_boolean()) return value->get<bool>();
  return value->is_number() || (value->is_string() ? *value != "" : !value->empty());
}

Status unsupported(const char* key) {
  return error(Code::kUnsupportedArchitecture, "%s: %s is not supported", kConfig, key);
}

Status read_config(std::string_view text, Adapter* out) {
  const Result<Json> config = hf::parse_json(text, kConfig);
  if (!config.ok()) return config.status();
  const std::string_view type = hf::json_string(*config, "peft_type").value_or("");
  if (type != "LORA") {
    return error(Code::kUnsupportedArchitecture, "%s: the adapter's type \"%s\" is not supported",
                 kConfig, printable(type).c_str());
  }
  for (const char* key : kRefused) {
    if (is_set(hf::json_find(*config, key))) return unsupported(key);
  }
  if (hf::json_string(*config, "bias").value_or("none") != "none") return unsupported("bias");
  // All other initializations change the model's own weights, too.
  const std::string_view begun = hf::json_string(*config, "init_lora_weights").value_or("");
  if (!begun.empty() && begun != "gaussian" && begun != "eva" && begun != "orthogonal") {
    return unsupported("init_lora_weights");
  }
  out->rank_stabilized = hf::json_bool(*config, "use_rslora").value_or(false);
  out->alpha = hf::json_number(*config, "lora_alpha").value_or(0);
  if (out->alpha == 0 || !std::isfinite(out->alpha)) {
    return error(Code::kBadHeader, "%s: lora_alpha is missing or invalid", kConfig);
  }
  return {};
}

// "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight" to
// "blk.0.attn_q.weight.lora_a"; empty when unknown.
std::string model_name(std::string_view name) {
  constexpr std::string_view kWrapper = "base_model.model.";
  if (name.starts_with(kWrapper)) name.remove_prefix(kWrapper.size());
  const size_t at = name.rfind(".lora_");
  if (at == std::string_view::npos) return {};
  std::string_view part = name.substr(at + 6);
  const bool embedding = part.starts_with("embedding_");
  if (embedding) part.remove_prefix(10);
  const bool is_a = part.starts_with('A');
  if (!is_a && !part.starts_with('B')) return {};
  part.remove_prefix(1);
  if (part.starts_with(".default")) part.remove_prefix(8);
  if (part != (embedding ? "" : ".weight")) return {};
  std::string found = hf::gguf_module_name(name.substr(0, at));
  if (found.empty() || (found == kEmbedding) != embedding) return {};
  return found.append(is_a ? kA : kB);
}

}  // namespace

Result<gguf::ParseProgress> parse_peft(std::string_view config, gguf::Bytes prefix,
                                       uint64_t file_size, Adapter* out) {
  *out = {};
  out->hugging_face = true;
  SLUICE_RETURN_IF_ERROR(read_config(config, out));
  hf::SafetensorsFile file;
  const Result<gguf::ParseProgress> parsed =
      hf::parse_safetensors(prefix, file_size, kTensors, &file);
  if (!parsed.ok() || !parsed->done) return parsed;
  std::vector<Named> tensors;
  tensors.reserve(file.entries.size());
  for (const hf::SafetensorsEntry& e : file.entries) {
    std::string name = model_name(e.name);
    if (name.empty()) {
      return error(Code::kUnsupportedArchitecture, "the adapter's tensor \"%s\" is not supported",
                   printable(e.name).c_str());
    }
    const Result<gguf::Tensor> tensor = hf::describe_tensor(e);
    if (!tensor.ok()) return tensor.status();
    tensors.emplace_back(std::move(name), *tensor);
  }
  SLUICE_RETURN_IF_ERROR(pair_up(std::move(tensors), true, &out->pairs));
  return parsed;
}

}  // namespace sluice::adapter

// The lists of the rule, each sorted; the names are those of llama.cpp's gguf-py.
#include "model/metadata_keys.h"

#include <algorithm>
#include <string>

#include "base/hash.h"

namespace sluice::model {
namespace {

constexpr std::string_view kGroups[] = {"activation_",
                                        "altup.",
                                        "attention.",
                                        "attn_",
                                        "block_diffusion",
                                        "deepstack",
                                        "embedding_length_per",
                                        "expert",
                                        "final_",
                                        "full_att",
                                        "hidden_act",
                                        "hyper_",
                                        "interleave_moe",
                                        "laurel.",
                                        "moe_",
                                        "n_deep",
                                        "nextn_",
                                        "per_layer",
                                        "rescale_",
                                        "rope.",
                                        "shortconv.",
                                        "ssm.",
                                        "swiglu_",
                                        "time_",
                                        "token_shift",
                                        "wkv",
                                        "xielu."};
// Layers with (shared) experts are recognized by their tensors. RoPE sections are equal for text,
// and deepstack layers only add to image positions.
constexpr std::string_view kHarmless[] = {
    "expert_shared_count",       "expert_shared_feed_forward_length",
    "interleave_moe_layer_step", "moe_every_n_layers",
    "n_deepstack_layers",        "rope.dimension_sections",
    "rope.scale_linear"};
constexpr std::string_view kMustBeOne[] = {"attention.causal", "rope.scaling.yarn_attn_factor",
                                           "rope.scaling.yarn_ext_factor"};
constexpr std::string_view kMayBeOne[] = {"attention.output_scale", "rope.scale",
                                          "rope.scaling.alpha"};

template <size_t N>
bool listed(const std::string_view (&list)[N], std::string_view key) {
  return std::find(std::begin(list), std::end(list), key) != std::end(list);
}

bool only(const gguf::Value& value, double wanted) {
  if (gguf::value_type_bytes(value.element) == 0) return false;  // strings, nested arrays
  uint64_t i = 0;
  while (i < value.count && value.number_at(i) == wanted) ++i;
  return i == value.count;
}

bool nothing(const gguf::Value& value) {
  return value.type == gguf::ValueType::kArray ? value.count == 0
                                               : value.as_string().value_or("?").empty();
}

bool passes(const gguf::Header& header, std::string_view full, std::string_view key,
            const gguf::Value& value) {
  const auto within = [key](std::string_view group) { return key.starts_with(group); };
  if (std::none_of(std::begin(kGroups), std::end(kGroups), within)) return true;
  if (listed(kHarmless, key) || nothing(value)) return true;
  if (listed(kMustBeOne, key)) return only(value, 1);
  if (only(value, 0) || (listed(kMayBeOne, key) && only(value, 1))) return true;
  constexpr std::string_view kLocal = "_swa";
  if (!full.ends_with(kLocal)) return false;
  const gguf::Value* all = header.find(full.substr(0, full.size() - kLocal.size()));
  return all != nullptr && all->as_f64().has_value() && only(value, *all->as_f64());
}

}  // namespace

Status check_keys(const gguf::Header& header, std::string_view arch,
                  std::span<const gguf::Value* const> read, uint64_t* hash) {
  const std::string prefix = std::string(arch) + ".";
  *hash = 0;
  for (const gguf::KeyValue& kv : header.metadata) {
    if (std::find(read.begin(), read.end(), &kv.value) != read.end()) {
      if (kv.key.ends_with(".context_length")) continue;
      Hash64 sum;
      sum.add(kv.key);
      sum.add(static_cast<uint64_t>(kv.value.element));
      sum.add(kv.value.bytes);
      *hash += sum.value();
      continue;
    }
    if (!kv.key.starts_with(prefix)) continue;
    if (passes(header, kv.key, kv.key.substr(prefix.size()), kv.value)) continue;
    return error(Code::kUnsupportedArchitecture,
                 "the metadata key %s is not supported for \"%s\" models",
                 std::string(kv.key.substr(0, 128)).c_str(), prefix.substr(0, arch.size()).c_str());
  }
  return {};
}

}  // namespace sluice::model

// Reads the parts of config.json that several families of further.h have in common.
#pragma once

#include <string>
#include <vector>

#include "hf/further.h"

namespace sluice::hf {

constexpr int64_t kMaxConfigLayers = 1024;

// The tensors outside the layers of most decoders.
inline constexpr Name kDecoderWhole[] = {
    {"embed_tokens", "token_embd"}, {"norm", "output_norm"}, {"lm_head", "output"}};

// Reads layers, positions, widths and heads. Returns the number of layers, at most
// kMaxConfigLayers.
inline int64_t read_decoder(ConfigFields& f, int64_t context) {
  const int64_t layers = f.size("num_hidden_layers"), heads = f.size("num_attention_heads");
  if (layers > kMaxConfigLayers) {
    f.fail(error(Code::kBadHeader, "config.json: num_hidden_layers is impossible"));
    return 1;
  }
  f.put("context_length", f.size("max_position_embeddings", context));
  f.put("embedding_length", f.size("hidden_size"));
  f.put("block_count", layers);
  f.put("attention.head_count", heads);
  f.put("attention.layer_norm_rms_epsilon", f.real(f.config(), "rms_norm_eps", 1e-6));
  return layers;
}

inline void read_head_size(ConfigFields& f, int64_t size) {
  f.put("attention.key_length", size);
  f.put("attention.value_length", size);
}

inline void expect_activation(ConfigFields& f, const char* key, std::string_view one,
                              std::string_view other = "") {
  const std::string_view act = json_string(f.config(), key).value_or(one);
  if (act != one && (other.empty() || act != other)) f.unsupported(key);
}

// The type of each layer; empty when config.json does not list them.
inline std::vector<std::string_view> layer_types(ConfigFields& f, int64_t layers) {
  std::vector<std::string_view> out;
  const Json* types = json_find(f.config(), "layer_types");
  if (types == nullptr) return out;
  for (size_t i = 0; types->is_array() && i < types->size(); i++) {
    const auto* text = (*types)[i].get_ptr<const Json::string_t*>();
    out.push_back(text == nullptr ? std::string_view() : std::string_view(*text));
  }
  if (out.size() != static_cast<size_t>(layers)) {
    f.fail(error(Code::kBadHeader, "config.json: layer_types does not list the layers"));
    out.clear();
  }
  return out;
}

// For each layer, 1 if its attention has a sliding window. Without a list, every `period`-th layer
// has none.
inline std::vector<int32_t> windows(ConfigFields& f, int64_t layers, int64_t period) {
  const std::vector<std::string_view> types = layer_types(f, layers);
  std::vector<int32_t> out(static_cast<size_t>(layers));
  for (size_t i = 0; i < out.size(); i++) {
    const bool full =
        types.empty() ? (i + 1) % static_cast<size_t>(period) == 0 : types[i] == "full_attention";
    if (!types.empty() && !full && types[i] != "sliding_attention") f.unsupported("a layer's type");
    out[i] = full ? 0 : 1;
  }
  return out;
}

// "rope_parameters" for a type of layers or for all layers, or the older keys.
inline const Json& rope_parameters(const Json& config, const char* kind = nullptr) {
  static const Json kNone = Json::object();
  const Json* all = json_find(config, "rope_parameters");
  if (all == nullptr) all = json_find(config, "rope_scaling");
  if (all == nullptr) return kNone;
  const Json* own = kind == nullptr ? nullptr : json_find(*all, kind);
  return own == nullptr ? *all : *own;
}

inline double rope_base(ConfigFields& f, const Json& rope, double fallback) {
  return f.real(rope, "rope_theta", f.real(f.config(), "rope_theta", fallback));
}

inline void expect_rope(ConfigFields& f, const Json& rope, std::string_view type) {
  const std::string_view given =
      json_string(rope, "rope_type").value_or(json_string(rope, "type").value_or(type));
  if (given != type && given != "default") f.unsupported("the RoPE scaling");
}

}  // namespace sluice::hf

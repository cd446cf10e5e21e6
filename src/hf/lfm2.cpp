// Names and sizes as in transformers' Lfm2 and Lfm2Moe.
#include "hf/lfm2.h"

#include <algorithm>

namespace sluice::hf {

std::string lfm2_name(std::string_view part, std::string_view suffix) {
  constexpr std::pair<std::string_view, std::string_view> kParts[] = {
      {"operator_norm", "attn_norm"},           {"ffn_norm", "ffn_norm"},
      {"self_attn.q_proj", "attn_q"},           {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},           {"self_attn.out_proj", "attn_output"},
      {"self_attn.q_layernorm", "attn_q_norm"}, {"self_attn.k_layernorm", "attn_k_norm"},
      {"conv.conv", "shortconv.conv"},          {"conv.in_proj", "shortconv.in_proj"},
      {"conv.out_proj", "shortconv.out_proj"},  {"feed_forward.w1", "ffn_gate"},
      {"feed_forward.w2", "ffn_down"},          {"feed_forward.w3", "ffn_up"},
      {"feed_forward.gate", "ffn_gate_inp"},
  };
  if (part == "feed_forward" && suffix == ".expert_bias") return "exp_probs_b.bias";
  if (suffix != ".weight") return {};
  constexpr std::string_view kExperts = "feed_forward.experts.";
  std::string expert;
  std::string dense;
  if (part.starts_with(kExperts)) {
    const std::string_view rest = part.substr(kExperts.size());
    const size_t dot = rest.find('.');
    const bool number = dot != 0 && dot <= 5 &&
                        std::all_of(rest.begin(), rest.begin() + static_cast<int64_t>(dot),
                                    [](char c) { return c >= '0' && c <= '9'; });
    if (dot == std::string_view::npos || !number) return {};
    expert = std::string(".").append(rest.substr(0, dot));
    part = dense = std::string("feed_forward").append(rest.substr(dot));
  }
  for (const auto& [theirs, ours] : kParts) {
    if (part == theirs) return std::string(ours) + expert + std::string(suffix);
  }
  return {};
}

int64_t lfm2_feed_forward(const Json& config) {
  constexpr int64_t kMax = INT32_MAX;
  const std::optional<int64_t> given = json_int(
      config, json_find(config, "block_ff_dim") != nullptr ? "block_ff_dim" : "intermediate_size");
  if (!given || *given < 1 || *given > kMax) return 0;
  if (!json_bool(config, "block_auto_adjust_ff_dim").value_or(true)) return *given;
  const int64_t multiple = json_int(config, "block_multiple_of").value_or(256);
  const double multiplier = json_number(config, "block_ffn_dim_multiplier").value_or(1);
  if (multiple < 1 || multiple > kMax || !(multiplier > 0 && multiplier < 64)) return 0;
  const auto n = static_cast<int64_t>(multiplier * static_cast<double>(2 * *given / 3));
  return (n + multiple - 1) / multiple * multiple;
}

std::vector<int32_t> lfm2_heads(const Json& config, int64_t n_layer, int64_t heads) {
  std::vector<int32_t> out(static_cast<size_t>(n_layer));
  const auto attends = [&](size_t layer) { out[layer] = static_cast<int32_t>(heads); };
  const Json* types = json_find(config, "layer_types");
  if (types != nullptr && types->is_array() && types->size() == out.size()) {
    for (size_t i = 0; i < out.size(); ++i) {
      if ((*types)[i] == "full_attention") {
        attends(i);
      } else if ((*types)[i] != "conv") {
        return {};
      }
    }
    return out;
  }
  const Json* indices = json_find(config, "full_attn_idxs");
  if (types != nullptr || indices == nullptr || !indices->is_array()) return {};
  for (const Json& index : *indices) {
    const int64_t layer = index.is_number_integer() ? index.get<int64_t>() : -1;
    if (layer < 0 || layer >= n_layer) return {};
    attends(static_cast<size_t>(layer));
  }
  return out;
}

}  // namespace sluice::hf

// Sorts tensors in the order of use by name only, so that it works for every model family, even
// ones that the engine does not support.
#include <algorithm>
#include <compare>

#include "convert/types.h"

namespace sluice::convert {
namespace {

// Parts of names in the order of a layer's operations. The first match decides, so longer names
// come before those they contain.
constexpr std::string_view kParts[] = {
    "attn_norm",      "ssm_in",         "shortconv.in",  "attn_qkv",
    "attn_q_a",       "attn_q_b",       "attn_q_norm",   "attn_q.",
    "attn_kv_a",      "attn_kv_b",      "attn_k_b",      "attn_v_b",
    "attn_k_norm",    "attn_k.",        "attn_v.",       "attn_gate",
    "ssm_conv1d",     "shortconv.conv", "ssm_x",         "ssm_dt",
    "ssm_a",          "ssm_",           "time_mix",      "attn_sinks",
    "attn_sub_norm",  "attn_output",    "shortconv.out", "post_attention_norm",
    "attn_post_norm", "ffn_norm",       "ffn_gate_inp",  "exp_probs",
    "ffn_gate_up",    "ffn_gate",       "ffn_up",        "ffn_sub_norm",
    "ffn_down",       "channel_mix",    "post_ffw_norm", "layer_output_norm"};

size_t rank_in_layer(std::string_view name) {
  for (size_t i = 0; i < std::size(kParts); ++i) {
    if (name.find(kParts[i]) != std::string_view::npos) return i;
  }
  return std::size(kParts);
}

struct Place {
  int stage = 0;  // before the layers, encoder, layers, behind them
  int32_t layer = 0;
  size_t rank = 0;
  uint32_t index = 0;
  auto operator<=>(const Place&) const = default;
};

Place place_of(std::string_view name, uint32_t index) {
  Place place{.index = index};
  const bool encoder = name.starts_with("enc.");
  if (encoder || name.starts_with("dec.")) {
    place.stage = encoder ? 1 : 2;
    name.remove_prefix(4);
    place.layer = layer_of(name);
    if (place.layer < 0) place.layer = INT32_MAX;  // the norm behind the layers
  } else if (layer_of(name) >= 0) {
    place.stage = 2;
    place.layer = layer_of(name);
  } else if (name.starts_with("output") || name.starts_with("cls") || name.starts_with("dense")) {
    place.stage = 3;
    const bool norm = name.find("norm") != std::string_view::npos;
    place.rank = norm ? 0 : name == "output.weight" ? 1 : 2;
  } else {
    place.rank = name == "token_embd.weight" ? 0 : 1;
  }
  if (layer_of(name) >= 0) place.rank = rank_in_layer(name);
  return place;
}

}  // namespace

std::vector<uint32_t> order_of_use(const gguf::Header& header) {
  std::vector<Place> places;
  for (uint32_t i = 0; i < header.tensors.size(); ++i) {
    places.push_back(place_of(header.tensors[i].name, i));
  }
  std::sort(places.begin(), places.end());
  std::vector<uint32_t> order;
  for (const Place& p : places) order.push_back(p.index);
  return order;
}

}  // namespace sluice::convert

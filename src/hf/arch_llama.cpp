// Llama, Mistral, SmolLM3, Qwen 2 and Qwen 3, and what other dense decoders share with them.
#include <algorithm>
#include <numbers>

#include "gguf/printable.h"
#include "hf/architecture.h"

namespace sluice::hf {
namespace {

constexpr Name kLlamaWhole[] = {{"embed_tokens", "token_embd"},
                                {"norm", "output_norm"},
                                {"lm_head", "output"},
                                // Old checkpoints contain RoPE's frequencies, which follow from
                                // the config.
                                {"rotary_emb.inv_freq", "-", TensorTransform::kSkip}};
constexpr Name kLlamaOwn[] = {
    {"post_attention_layernorm", "ffn_norm"},
    {"self_attn.rotary_emb.inv_freq", "-", TensorTransform::kSkip},
};
constexpr auto kLlamaLayer = joined(kAttentionNames, kDenseNames, kLlamaOwn);

// Llama 3.1's rule, from its reference code: low frequencies are divided by `factor`, high ones
// are kept, and those in between are interpolated.
void read_llama3(ConfigReader& r, const Json& scaling, int64_t head_dim, double base) {
  const double factor = r.real(scaling, "factor", 0);
  const double low = r.real(scaling, "low_freq_factor", 1);
  const double high = r.real(scaling, "high_freq_factor", 4);
  const double original = r.real(scaling, "original_max_position_embeddings", 8192);
  if (!(low > 0) || !(high > low) || !(original > 0)) {
    return r.fail(error(Code::kBadHeader, "config.json: rope_scaling is inconsistent"));
  }
  if (head_dim > 4096) return r.unsupported("a head size above 4096");
  for (int64_t i = 0; i < head_dim / 2; i++) {
    const double exponent = 2 * static_cast<double>(i) / static_cast<double>(head_dim);
    const double wave = 2 * std::numbers::pi * std::exp(exponent * std::log(base));
    double divisor = 1;
    if (wave > original / low) {
      divisor = factor;
    } else if (wave >= original / high) {
      const double smooth = (original / wave - low) / (high - low);
      divisor = 1 / ((1 - smooth) / factor + smooth);
    }
    r.facts.rope_factors.push_back(static_cast<float>(divisor));
  }
}

// GGUF's attn_factor multiplies YaRN's default, 0.1 ln s + 1.
void read_scaled_yarn(ConfigReader& r, const Json& scaling) {
  const double factor =
      read_yarn(r, scaling, static_cast<double>(r.size("max_position_embeddings")));
  if (factor == 0) return;
  const double usual = 0.1 * std::log(factor) + 1;
  r.put("rope.scaling.attn_factor", r.real(scaling, "attention_factor", usual) / usual);
  if (json_find(scaling, "mscale") != nullptr || json_find(scaling, "mscale_all_dim") != nullptr) {
    r.unsupported("mscale in rope_scaling");
  }
}

void read_scaling(ConfigReader& r, const Json& scaling, int64_t head_dim, double base) {
  std::string_view type = json_string(scaling, "rope_type").value_or("");
  if (type.empty()) type = json_string(scaling, "type").value_or("default");
  if (type == "default") return;
  const double factor = r.real(scaling, "factor", 0);
  if (!(factor >= 1 && factor < 1e6)) return r.impossible("the factor of rope_scaling");
  if (type == "llama3") return read_llama3(r, scaling, head_dim, base);
  if (type == "yarn") return read_scaled_yarn(r, scaling);
  if (type != "linear") {
    return r.unsupported(("the RoPE scaling \"" + gguf::printable(type) + "\"").c_str());
  }
  r.put_text("rope.scaling.type", type);
  r.put("rope.scaling.factor", factor);
}

void check_llama(ConfigReader& r) {
  const std::string_view act = json_string(r.config(), "hidden_act").value_or("");
  if (!act.empty() && act != "silu") {
    r.unsupported(("the activation \"" + gguf::printable(act) + "\"").c_str());
  }
  check_dense(r);
}

void read_llama_rope(ConfigReader& r) {
  read_dense_rope(r, head_dim(r), 10000);
}

// Every fourth layer has no RoPE.
void check_smollm3(ConfigReader& r) {
  const Json* list = json_find(r.config(), "no_rope_layers");
  if (list == nullptr) return;
  for (size_t i = 0; list->is_array() && i < list->size(); i++) {
    if ((*list)[i] != ((i + 1) % 4 == 0 ? 0 : 1)) r.unsupported("an unusual no_rope_layers");
  }
}

constexpr Field kLlama[] = {
    read_by(check_llama),
    all_of(kDenseFields),
    computed("attention.key_length", head_dim),
    computed("attention.value_length", head_dim),
    real_of("attention.layer_norm_rms_epsilon", "rms_norm_eps", 1e-6),
    computed("rope.dimension_count", head_dim),
    read_by(read_llama_rope),
};
constexpr Field kMistral[] = {all_of(kLlama), read_by(read_window)};
constexpr Field kSmollm3[] = {all_of(kLlama), read_by(check_smollm3)};

}  // namespace

int64_t head_dim(ConfigReader& r) {
  const int64_t width = r.size("hidden_size"), heads = r.size("num_attention_heads");
  return r.size("head_dim", std::max<int64_t>(1, width / heads));
}

void read_window(ConfigReader& r) {
  if (json_find(r.config(), "sliding_window") == nullptr) return;
  r.put("attention.sliding_window", r.size("sliding_window"));
}

void check_dense(ConfigReader& r) {
  for (const char* key : {"mlp_bias", "use_sliding_window"}) {
    if (r.flag(key, false)) r.unsupported(key);
  }
  if (json_number(r.config(), "partial_rotary_factor").value_or(1) != 1) {
    r.unsupported("partial_rotary_factor");
  }
}

void read_dense_rope(ConfigReader& r, int64_t head_dim, double base, std::optional<double> local) {
  const Json& rope = rope_parameters(r.config(), "full_attention");
  base = rope_base(r, rope, base);
  if (!(base > 0) || !(local.value_or(1) > 0)) {
    return r.fail(error(Code::kBadHeader, "config.json: rope_theta is not positive"));
  }
  r.put("rope.freq_base", base);
  if (local) r.put("rope.freq_base_swa", *local);
  read_scaling(r, rope, head_dim, base);
}

const TensorMap kLlamaTensors = {.skipped = {},
                                 .prefixes = kModelPrefix,
                                 .whole = kLlamaWhole,
                                 .of_layer = kLlamaLayer,
                                 .in_file_order = true};
const std::span<const Field> kLlamaFields = kLlama, kMistralFields = kMistral,
                             kSmollm3Fields = kSmollm3;

}  // namespace sluice::hf

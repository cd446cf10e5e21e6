// Converts config.json to metadata, and tensor names to GGUF's.
#include "hf/config.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "gguf/metadata_writer.h"
#include "gguf/printable.h"
#include "hf/config_fields.h"
#include "hf/family.h"
#include "hf/further.h"
#include "hf/json.h"
#include "hf/lfm2.h"
#include "hf/pooling.h"
#include "hf/tokenizer.h"

namespace sluice::hf {

namespace {

using gguf::Header;
using gguf::index_tensors;
using gguf::MetadataWriter;
using gguf::printable;
using gguf::Tensor;

// Reads config.json into metadata.
class ConfigReader : private ConfigFields {
 public:
  ConfigReader(const Json& config, const Family& family, MetadataWriter* out)
      : ConfigFields(config, family.arch, out), family_(family) {}

  Status read() {
    check_variants();
    read_sizes();
    read_rope();
    read_attention();
    if (family_.lfm2) read_lfm2();
    if (status_.ok() && family_.permuted) out_->boolean("sluice.rope_neox", true);
    if (status_.ok() && family_.gemma) out_->number("sluice.norm_offset", 1.0f);
    return status_;
  }

  [[nodiscard]] int64_t vocab_size() const { return vocab_size_; }
  // Divisors of RoPE's frequencies; empty if the config has none.
  [[nodiscard]] const std::vector<float>& rope_factors() const { return rope_factors_; }

 private:
  [[nodiscard]] bool gemma3() const { return family_.model_type == "gemma3_text"; }

  void check_variants() {
    if (json_find(config_, "quantization_config") != nullptr) {
      return fail(error(Code::kUnsupportedType,
                        "config.json: quantized safetensors (quantization_config) are not "
                        "supported; use F32, F16, BF16 or a GGUF file"));
    }
    const char* key = family_.gemma ? "hidden_activation" : "hidden_act";
    const std::string_view act = json_string(config_, key).value_or("");
    const bool known = act.empty() || (family_.gemma ? act.substr(0, 4) == "gelu" : act == "silu");
    if (!known) unsupported(("the activation \"" + printable(act) + "\"").c_str());
    if (json_bool(config_, "mlp_bias").value_or(false)) unsupported("mlp_bias");
    if (json_bool(config_, "use_sliding_window").value_or(false)) {
      unsupported("use_sliding_window");
    }
    if (json_number(config_, "partial_rotary_factor").value_or(1) != 1) {
      unsupported("partial_rotary_factor");
    }
  }

  void read_sizes() {
    vocab_size_ = size("vocab_size");
    head_count_ = size("num_attention_heads");
    hidden_ = size("hidden_size");
    const int64_t fallback = family_.gemma ? 256 : std::max<int64_t>(1, hidden_ / head_count_);
    head_dim_ = size("head_dim", fallback);
    context_ = size("max_position_embeddings");
    put("vocab_size", vocab_size_);
    put("context_length", context_);
    put("embedding_length", hidden_);
    put("block_count", n_layer_ = size("num_hidden_layers"));
    put("attention.head_count", head_count_);
    if (!family_.lfm2) {
      put("feed_forward_length", size("intermediate_size"));
      put("attention.head_count_kv", size("num_key_value_heads", head_count_));
    }
    put("attention.key_length", head_dim_);
    put("attention.value_length", head_dim_);
    put("attention.layer_norm_rms_epsilon",
        family_.lfm2 ? real(config_, "norm_eps", 1e-5) : real(config_, "rms_norm_eps", 1e-6));
  }

  // Newer configs have "rope_parameters" in place of "rope_theta" and "rope_scaling".
  void read_rope() {
    const Json none = Json::object();
    const Json* scaling = json_find(config_, "rope_scaling");
    double base = real(config_, "rope_theta", gemma3() || family_.lfm2 ? 1e6 : 10000);
    double local = real(config_, "rope_local_base_freq", 10000);
    if (const Json* parameters = json_find(config_, "rope_parameters")) {
      const Json* global = json_find(*parameters, "full_attention");
      scaling = global != nullptr ? global : parameters;
      base = real(*scaling, "rope_theta", base);
      if (const Json* windowed = json_find(*parameters, "sliding_attention")) {
        local = real(*windowed, "rope_theta", local);
      }
    }
    if (!(base > 0) || !(local > 0)) {
      return fail(error(Code::kBadHeader, "config.json: rope_theta is not positive"));
    }
    put("rope.dimension_count", head_dim_);
    put("rope.freq_base", base);
    if (gemma3()) put("rope.freq_base_swa", local);
    read_scaling(scaling != nullptr ? *scaling : none, base);
  }

  void read_scaling(const Json& scaling, double base) {
    std::string_view type = json_string(scaling, "rope_type").value_or("");
    if (type.empty()) type = json_string(scaling, "type").value_or("default");
    if (type == "default") return;
    const double factor = real(scaling, "factor", 0);
    if (!(factor >= 1 && factor < 1e6)) {
      return fail(error(Code::kBadHeader, "config.json: the factor of rope_scaling is impossible"));
    }
    if (type == "llama3") return read_llama3(scaling, factor, base);
    if (type == "linear" || type == "yarn") {
      out_->string(prefix_ + "rope.scaling.type", type);
      put("rope.scaling.factor", factor);
    } else {
      return unsupported(("the RoPE scaling \"" + printable(type) + "\"").c_str());
    }
    if (type == "yarn") read_yarn(scaling, factor);
  }

  // YaRN: https://arxiv.org/abs/2309.00071. GGUF's attn_factor multiplies the default 0.1 ln s + 1.
  void read_yarn(const Json& scaling, double factor) {
    const double original =
        real(scaling, "original_max_position_embeddings", static_cast<double>(context_));
    if (!(original >= 1 && original <= INT32_MAX)) {
      return fail(
          error(Code::kBadHeader, "config.json: original_max_position_embeddings is impossible"));
    }
    put("rope.scaling.original_context_length", static_cast<int64_t>(original));
    put("rope.scaling.yarn_beta_fast", real(scaling, "beta_fast", 32));
    put("rope.scaling.yarn_beta_slow", real(scaling, "beta_slow", 1));
    const double usual = 0.1 * std::log(factor) + 1;
    put("rope.scaling.attn_factor", real(scaling, "attention_factor", usual) / usual);
    if (json_find(scaling, "mscale") != nullptr ||
        json_find(scaling, "mscale_all_dim") != nullptr) {
      unsupported("mscale in rope_scaling");
    }
  }

  // Llama 3.1's rule, from its reference code: low frequencies are divided by `factor`, high ones
  // are kept, and those in between are interpolated.
  void read_llama3(const Json& scaling, double factor, double base) {
    const double low = real(scaling, "low_freq_factor", 1);
    const double high = real(scaling, "high_freq_factor", 4);
    const double original = real(scaling, "original_max_position_embeddings", 8192);
    if (!(low > 0) || !(high > low) || !(original > 0)) {
      return fail(error(Code::kBadHeader, "config.json: rope_scaling is inconsistent"));
    }
    if (head_dim_ > 4096) return unsupported("a head size above 4096");
    for (int64_t i = 0; i < head_dim_ / 2; i++) {
      const double exponent = 2 * static_cast<double>(i) / static_cast<double>(head_dim_);
      const double wave = 2 * std::numbers::pi * std::exp(exponent * std::log(base));
      double divisor = 1;
      if (wave > original / low) {
        divisor = factor;
      } else if (wave >= original / high) {
        const double smooth = (original / wave - low) / (high - low);
        divisor = 1 / ((1 - smooth) / factor + smooth);
      }
      rope_factors_.push_back(static_cast<float>(divisor));
    }
  }

  void read_attention() {
    if (family_.windowed && json_find(config_, "sliding_window") != nullptr) {
      put("attention.sliding_window", size("sliding_window"));
    }
    if (gemma3()) put("attention.sliding_window_pattern", window_pattern());
    if (family_.arch == "smollm3") check_smollm3();
    if (!family_.post_norms) return;
    const double scalar = real(config_, "query_pre_attn_scalar", static_cast<double>(head_dim_));
    if (!(scalar > 0)) {
      return fail(error(Code::kBadHeader, "config.json: query_pre_attn_scalar is not positive"));
    }
    put("attention.scale", 1 / std::sqrt(scalar));
    if (family_.arch == "gemma2") {
      put("attn_logit_softcapping", real(config_, "attn_logit_softcapping", 50));
      put("final_logit_softcapping", real(config_, "final_logit_softcapping", 30));
    } else if (json_find(config_, "attn_logit_softcapping") != nullptr ||
               json_find(config_, "final_logit_softcapping") != nullptr) {
      unsupported("a soft cap in gemma3");
    }
  }

  // The period of layers with global attention: given, or derived from the list of layer types.
  int64_t window_pattern() {
    const Json* types = json_find(config_, "layer_types");
    if (types == nullptr) return size("sliding_window_pattern", 6);
    if (!types->is_array() || types->size() != static_cast<size_t>(n_layer_)) {
      fail(error(Code::kBadHeader, "config.json: layer_types does not list the layers"));
      return 1;
    }
    size_t first = 0;
    while (first < types->size() && (*types)[first] != "full_attention") first++;
    for (size_t i = 0; i < types->size(); i++) {
      const bool full = first < types->size() && i % (first + 1) == first;
      if ((*types)[i] != (full ? "full_attention" : "sliding_attention")) {
        unsupported("an irregular list of layer_types");
        return 1;
      }
    }
    return static_cast<int64_t>(first + 1);
  }

  void read_lfm2() {
    const bool mixture = family_.arch == "lfm2moe";
    if (json_bool(config_, "conv_bias").value_or(false)) unsupported("conv_bias");
    const int64_t n_ff = mixture ? size("intermediate_size") : lfm2_feed_forward(config_);
    if (n_ff < 1) fail(error(Code::kBadHeader, "config.json: intermediate_size is impossible"));
    put("feed_forward_length", n_ff);
    put("shortconv.l_cache", size("conv_L_cache", 3));
    constexpr int64_t kMaxLayers = 1024;
    if (n_layer_ > kMaxLayers) {
      return fail(error(Code::kBadHeader, "config.json: num_hidden_layers is impossible"));
    }
    const int64_t heads = size("num_key_value_heads", head_count_);
    const std::vector<int32_t> by_layer = lfm2_heads(config_, n_layer_, heads);
    if (by_layer.empty()) {
      return fail(error(Code::kBadHeader, "config.json: layer_types does not list the layers"));
    }
    out_->integers(prefix_ + "attention.head_count_kv", by_layer);
    if (!mixture) return;
    put("expert_count", size("num_experts"));
    put("expert_used_count", size("num_experts_per_tok"));
    put("expert_feed_forward_length", size("moe_intermediate_size"));
    put("expert_weights_scale", real(config_, "routed_scaling_factor", 1));
    put("expert_gating_func", int64_t{2});
    out_->boolean(prefix_ + "expert_weights_norm",
                  json_bool(config_, "norm_topk_prob").value_or(true));
  }

  void check_smollm3() {
    const Json* list = json_find(config_, "no_rope_layers");
    if (list == nullptr) return;
    for (size_t i = 0; list->is_array() && i < list->size(); i++) {
      if ((*list)[i] != ((i + 1) % 4 == 0 ? 0 : 1)) unsupported("an unusual no_rope_layers");
    }
  }

  const Family& family_;
  int64_t vocab_size_ = 0, head_count_ = 1, hidden_ = 1, head_dim_ = 1, context_ = 1, n_layer_ = 1;
  std::vector<float> rope_factors_;
};

// "model.layers.7.self_attn.q_proj.weight" -> "blk.7.attn_q.weight"; empty when unknown.
std::string gguf_name(std::string_view name, const Family& family) {
  if (name.substr(0, 6) == "model.") name.remove_prefix(6);  // absent in some checkpoints
  if (name == "embed_tokens.weight") return "token_embd.weight";
  if (name == "norm.weight") return "output_norm.weight";
  if (family.lfm2 && name == "embedding_norm.weight") return "token_embd_norm.weight";
  if (name == "lm_head.weight") return "output.weight";
  constexpr std::string_view kLayers = "layers.";
  if (name.substr(0, kLayers.size()) != kLayers) return {};
  name.remove_prefix(kLayers.size());
  size_t digits = 0;
  while (digits < name.size() && name[digits] >= '0' && name[digits] <= '9') digits++;
  const size_t last_dot = name.rfind('.');
  if (digits == 0 || digits > 5 || digits >= name.size() || name[digits] != '.' ||
      last_dot <= digits) {
    return {};
  }
  const std::string_view part = name.substr(digits + 1, last_dot - digits - 1);
  const std::string_view suffix = name.substr(last_dot);
  const auto of_layer = [&](std::string_view ours) {
    return std::string("blk.").append(name.substr(0, digits)).append(".").append(ours);
  };
  if (family.lfm2) {
    const std::string ours = lfm2_name(part, suffix);
    return ours.empty() ? ours : of_layer(ours);
  }
  if (suffix != ".weight" && suffix != ".bias") return {};
  const std::pair<std::string_view, std::string_view> kParts[] = {
      {"input_layernorm", "attn_norm"},
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"},
      {"self_attn.q_norm", "attn_q_norm"},
      {"self_attn.k_norm", "attn_k_norm"},
      {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"},
      {"post_attention_layernorm", family.post_norms ? "post_attention_norm" : "ffn_norm"},
      {"pre_feedforward_layernorm", family.post_norms ? "ffn_norm" : ""},
      {"post_feedforward_layernorm", family.post_norms ? "post_ffw_norm" : ""},
  };
  for (const auto& [theirs, ours] : kParts) {
    if (part == theirs && !ours.empty()) {
      return of_layer(ours).append(suffix);
    }
  }
  return {};
}

class TensorReader {
 public:
  TensorReader(const Family& family, bool tied, Header* header, MetadataWriter* writer)
      : family_(family), tied_(tied), header_(header), writer_(writer) {}

  Status read(const SafetensorsFile& shard, uint32_t file) {
    for (const SafetensorsEntry& e : shard.entries) SLUICE_RETURN_IF_ERROR(add(e, file));
    return {};
  }

 private:
  Status add(const SafetensorsEntry& e, uint32_t file) {
    // Old checkpoints contain RoPE's frequencies, which follow from the config.
    const bool computed = e.name.find(".rotary_emb.inv_freq") != std::string::npos;
    if (computed || (tied_ && e.name == "lm_head.weight")) return {};
    const std::string name = gguf_name(e.name, family_);
    if (name.empty()) {
      return error(Code::kUnsupportedArchitecture,
                   "the tensor \"%s\" does not belong to the model family \"%s\"",
                   printable(e.name).c_str(), std::string(family_.model_type).c_str());
    }
    Result<Tensor> t = describe_tensor(e);
    if (!t.ok()) return t.status();
    t->file = file;
    return add_tensor(name, *t, header_, writer_);
  }

  const Family& family_;
  const bool tied_;
  Header* header_;
  MetadataWriter* writer_;
};

Result<const Family*> find_family(const Json& config) {
  const std::string_view type = json_string(config, "model_type").value_or("");
  const bool sees_all = json_bool(config, "use_bidirectional_attention").value_or(false);
  for (const Family& family : families()) {
    if (type == family.model_type && sees_all == (family.arch == "gemma-embedding")) return &family;
  }
  if (type.empty()) return error(Code::kBadHeader, "config.json has no model_type");
  if (sees_all)
    return error(Code::kUnsupportedArchitecture,
                 "config.json: use_bidirectional_attention is not supported with \"%s\"",
                 printable(type).c_str());
  return error(Code::kUnsupportedArchitecture,
               "the model family \"%s\" is not supported as safetensors", printable(type).c_str());
}

}  // namespace

// The matrices have the same names in all families.
std::string gguf_module_name(std::string_view module) {
  return gguf_name(std::string(module).append(".weight"), families()[0]);
}

Result<Model> describe_model(const Directory& directory) {
  const Result<Json> config = parse_json(directory.config, "config.json");
  if (!config.ok()) return config.status();
  if (directory.shards.empty() || directory.shards.size() > gguf::kMaxSplits) {
    return error(Code::kBadHeader, "the model has %zu safetensors files", directory.shards.size());
  }
  if (const Further* further = find_further(*config)) {
    return describe_further(*further, directory, *config);
  }
  const Result<const Family*> family = find_family(*config);
  if (!family.ok()) return family.status();
  Model model;
  Header& h = model.header;
  MetadataWriter writer(&h);
  begin_model(directory, (*family)->arch, &model, &writer);
  ConfigReader reader(*config, **family, &writer);
  SLUICE_RETURN_IF_ERROR(reader.read());
  SLUICE_RETURN_IF_ERROR(write_pooling(directory, (*family)->arch, &model, &writer));

  const auto tie = json_bool(*config, "tie_embedding");  // LFM2's
  const bool tied =
      tie.value_or(json_bool(*config, "tie_word_embeddings").value_or((*family)->tied));
  TensorReader tensors(**family, tied, &h, &writer);
  for (uint32_t i = 0; i < directory.shards.size(); i++) {
    SLUICE_RETURN_IF_ERROR(tensors.read(directory.shards[i], i));
  }
  add_rope_factors(reader.rope_factors(), &model);
  SLUICE_RETURN_IF_ERROR(index_tensors(&h));
  SLUICE_RETURN_IF_ERROR(describe_tokenizer(directory, *config, reader.vocab_size(), &writer));
  return model;
}

}  // namespace sluice::hf

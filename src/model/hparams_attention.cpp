// Reads hyperparameters of attention: heads, RoPE, latent attention, windows.
#include <algorithm>
#include <cmath>

#include "model/hparams_reader.h"

namespace sluice::model {
namespace {

bool is_latent(const HParams& hp) {
  return hp.arch == "deepseek2" || hp.arch == "mistral4" || hp.arch == "minicpm3" ||
         hp.arch == "kimi-linear";
}

void read_head_counts(Reader& r, HParams& hp, bool recurrent) {
  hp.attention.n_head =
      r.integer("attention.head_count", recurrent ? 0 : 1, kMaxHeads, recurrent ? 0 : -1);
  read_by_layer(r, hp, "attention.head_count", kMaxHeads, hp.attention.n_head_of);
  for (const int64_t n : hp.attention.n_head_of)
    hp.attention.n_head = std::max(hp.attention.n_head, n);
  if (!r.status().ok() || hp.attention.n_head == 0) return;
  const gguf::Value* kv = r.raw("attention.head_count_kv");
  if (kv == nullptr || kv->type != gguf::ValueType::kArray) {
    hp.attention.n_head_kv =
        r.integer("attention.head_count_kv", 1, hp.attention.n_head, hp.attention.n_head);
    return;
  }
  if (kv->count != static_cast<uint64_t>(hp.n_layer) &&
      kv->count != static_cast<uint64_t>(hp.n_layer + hp.n_layer_nextn)) {
    r.fail(error(Code::kBadHeader, "attention.head_count_kv has %lld entries for %lld layers",
                 ll(static_cast<int64_t>(kv->count)), ll(hp.n_layer)));
    return;
  }
  for (uint64_t i = 0; i < kv->count; ++i) {
    const double n = kv->number_at(i);
    if (!(n >= 0 && n <= static_cast<double>(hp.attention.n_head))) {
      r.fail(error(Code::kBadHeader, "attention.head_count_kv of layer %lld is out of range",
                   ll(static_cast<int64_t>(i))));
      return;
    }
    hp.attention.n_head_kv_of.push_back(static_cast<int64_t>(n));
    hp.attention.n_head_kv = std::max(hp.attention.n_head_kv, static_cast<int64_t>(n));
  }
  if (hp.attention.n_head_kv == 0) r.fail(error(Code::kBadHeader, "no layer has attention heads"));
}

}  // namespace

void read_rope(Reader& r, HParams& hp) {
  RopeHParams& rope = hp.rope;
  const int64_t n_rot =
      r.integer("rope.dimension_count", 0, hp.attention.head_dim_k, hp.attention.head_dim_k);
  if (n_rot % 2 != 0) {
    r.fail(error(Code::kBadHeader, "rope.dimension_count %lld is odd", ll(n_rot)));
  }
  rope.n_rot = static_cast<int32_t>(n_rot);
  if (const gguf::Value* sections = r.raw("rope.dimension_sections");
      sections != nullptr && sections->count >= rope.sections.size()) {
    for (size_t i = 0; i < rope.sections.size(); ++i) {
      const double n = sections->number_at(i);
      constexpr double kMaxSection = 1 << 16;
      if (!(n >= 0 && n <= kMaxSection)) {
        r.fail(error(Code::kBadHeader, "rope.dimension_sections is out of range"));
        break;
      }
      rope.sections[i] = static_cast<int32_t>(n);
    }
    if (rope.sections[0] == 0 || rope.sections[1] == 0) rope.sections = {};  // as llama.cpp
    rope.in_turns = hp.arch.rfind("qwen3", 0) == 0;
  }
  rope.freq_base = r.real("rope.freq_base", 10000.0f);
  hp.window.freq_base = r.real("rope.freq_base_swa", 10000.0f);
  if (!(rope.freq_base > 0) || !(hp.window.freq_base > 0)) {
    r.fail(error(Code::kBadHeader, "rope.freq_base is not positive"));
  }
  rope.n_ctx_orig =
      r.integer("rope.scaling.original_context_length", 0, kMaxContext, hp.n_ctx_train);
  const std::string type = r.text("rope.scaling.type");
  float factor = r.real("rope.scaling.factor", 0);
  if (factor == 0) factor = r.real("rope.scale_linear", 1);  // the older key
  if (factor == 0) factor = 1;
  if (!(factor > 0)) {
    r.fail(error(Code::kBadHeader, "rope.scaling.factor is not positive"));
    factor = 1;
  }
  if (type == "linear" || type.empty()) {
    rope.scaling = factor == 1 ? RopeScaling::kNone : RopeScaling::kLinear;
    rope.freq_scale = 1 / factor;
  } else if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    rope.freq_scale = 1 / factor;
  } else if (type == "longrope" || type == "su") {
    rope.scaling = RopeScaling::kLongRope;
  } else if (type != "none") {
    r.fail(error(Code::kBadHeader, "rope.scaling.type \"%.64s\" is unknown", type.c_str()));
  }
  rope.attn_factor = r.real("rope.scaling.attn_factor", 1);
  rope.beta_fast = r.real("rope.scaling.yarn_beta_fast", 32);
  rope.beta_slow = r.real("rope.scaling.yarn_beta_slow", 1);
  if (hp.arch == "mistral3" || is_latent(hp)) {
    rope.log_multiplier = r.real("rope.scaling.yarn_log_multiplier", 0);
    if (rope.log_multiplier < 0) {
      r.fail(error(Code::kBadHeader, "rope.scaling.yarn_log_multiplier is negative"));
    }
    hp.temperature.scale = r.real("attention.temperature_scale", 0);
    hp.temperature.length =
        r.integer("attention.temperature_length", 0, kMaxContext, rope.n_ctx_orig);
    if (hp.temperature.length == 0) hp.temperature.length = std::max<int64_t>(1, rope.n_ctx_orig);
  }
  const gguf::Value* finetuned = r.raw("rope.scaling.finetuned");
  hp.rope.disabled = hp.arch.rfind("granite", 0) == 0 && finetuned != nullptr &&
                     !finetuned->as_bool().value_or(true);
}

void read_heads(Reader& r, HParams& hp, bool recurrent) {
  read_head_counts(r, hp, recurrent);
  if (!r.status().ok() || hp.attention.n_head == 0) return;
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    const int64_t n = hp.kv_heads(layer), heads = hp.heads(layer);
    if (n != 0 && (heads == 0 || heads % n != 0)) {
      r.fail(error(Code::kBadHeader,
                   "%lld query heads cannot be divided among %lld key/value heads", ll(heads),
                   ll(n)));
      return;
    }
  }
  hp.attention.head_dim_k =
      r.integer("attention.key_length", 1, kMaxWidth, hp.n_embd / hp.attention.n_head);
  hp.attention.head_dim_v =
      r.integer("attention.value_length", 1, kMaxWidth, hp.attention.head_dim_k);
  if (hp.attention.head_dim_k < 1 ||
      hp.attention.n_head * std::max(hp.attention.head_dim_k, hp.attention.head_dim_v) >
          kMaxWidth) {
    r.fail(error(Code::kBadHeader, "%lld heads of %lld values are out of range",
                 ll(hp.attention.n_head), ll(hp.attention.head_dim_k)));
  }
}

void read_latent(Reader& r, HParams& hp) {
  if (!is_latent(hp)) return;
  hp.mla.q_lora_rank = r.integer("attention.q_lora_rank", 0, kMaxWidth, 0);
  hp.mla.kv_lora_rank = r.integer("attention.kv_lora_rank", 1, kMaxWidth, -1);
  hp.mla.head_dim_k = r.integer("attention.key_length_mla", 0, kMaxWidth, 0);
  hp.mla.head_dim_v = r.integer("attention.value_length_mla", 0, kMaxWidth, 0);
  if (!r.status().ok()) return;
  const int64_t n_rot = hp.rope.n_rot;
  const bool absorbed = hp.mla.head_dim_k > 0;
  const int64_t dk = absorbed ? hp.mla.head_dim_k : hp.attention.head_dim_k;
  if (absorbed != (hp.mla.head_dim_v > 0) || n_rot < 1 || n_rot >= dk ||
      hp.attention.n_head * std::max(hp.mla.head_dim_k, hp.mla.head_dim_v) > kMaxWidth ||
      (absorbed && (hp.attention.head_dim_k != hp.mla.kv_lora_rank + n_rot ||
                    hp.attention.head_dim_v != hp.mla.kv_lora_rank))) {
    r.fail(error(Code::kBadHeader, "the sizes of latent attention do not match"));
  }
}

void read_windows(Reader& r, HParams& hp, bool by_list) {
  hp.window.size = r.integer("attention.sliding_window", 0, kMaxContext, 0);
  if (by_list || is_gemma3n_or_4(hp)) {
    std::vector<int64_t> local;
    read_by_layer(r, hp, "attention.sliding_window_pattern", 1, local);
    hp.window.local_of.assign(local.begin(), local.end());
    if (!local.empty()) return;
  }
  const gguf::Value* pattern = r.raw("attention.sliding_window_pattern");
  if (pattern == nullptr || hp.window.size == 0) return;
  if (pattern->type == gguf::ValueType::kArray && !hp.attention.causal) {
    if (pattern->count != static_cast<uint64_t>(hp.n_layer)) {
      r.fail(error(Code::kBadHeader,
                   "attention.sliding_window_pattern has %lld entries for %lld layers",
                   ll(static_cast<int64_t>(pattern->count)), ll(hp.n_layer)));
      return;
    }
    for (uint64_t i = 0; i < pattern->count; ++i) {
      hp.window.local_layers.push_back(pattern->number_at(i) != 0 ? 1 : 0);
    }
    return;
  }
  if (pattern->type != gguf::ValueType::kArray) {
    hp.window.pattern = r.integer("attention.sliding_window_pattern", 0, kMaxLayers, 0);
    return;
  }
  // Finds the period whose last layer is the global one; n_layer + 1: no global layer.
  const auto fits = [&](int64_t period) {
    int64_t i = 0;
    while (i < hp.n_layer &&
           (pattern->number_at(static_cast<uint64_t>(i)) != 0) == (i % period < period - 1)) {
      ++i;
    }
    return i == hp.n_layer;
  };
  hp.window.pattern = 1;
  while (hp.window.pattern <= hp.n_layer && !fits(hp.window.pattern)) ++hp.window.pattern;
  const bool by_layer = hp.arch == "gemma2" || hp.arch == "gemma3" || hp.arch == "llama" ||
                        hp.arch == "granite_swa" || hp.arch == "gpt-oss" || hp.arch == "afmoe";
  if (!fits(hp.window.pattern) || (!by_layer && hp.window.pattern <= hp.n_layer)) {
    r.fail(error(Code::kUnsupportedArchitecture,
                 "this attention.sliding_window_pattern is not supported for \"%s\"",
                 hp.arch.c_str()));
  }
}

}  // namespace sluice::model

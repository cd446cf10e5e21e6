// Reads and checks hyperparameters; hparams_attention.cpp has those of attention.
#include "model/hparams.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gguf/embedding_clusters.h"
#include "gguf/printable.h"
#include "model/families.h"
#include "model/hparams_reader.h"
#include "model/metadata_keys.h"

namespace sluice::model {

void read_by_layer(Reader& r, const HParams& hp, const char* key, int64_t max,
                   std::vector<int64_t>& out) {
  const gguf::Value* value = r.raw(key);
  if (value == nullptr || value->type != gguf::ValueType::kArray) return;
  if (value->count != static_cast<uint64_t>(hp.n_layer) &&
      value->count != static_cast<uint64_t>(hp.n_layer + hp.n_layer_nextn)) {
    r.fail(error(Code::kBadHeader, "%s has %lld entries for %lld layers", key,
                 ll(static_cast<int64_t>(value->count)), ll(hp.n_layer)));
    return;
  }
  for (uint64_t i = 0; i < value->count; ++i) {
    const double n = value->number_at(i);
    if (!(n >= 0 && n <= static_cast<double>(max))) {
      r.fail(error(Code::kBadHeader, "%s of layer %lld is out of range", key,
                   ll(static_cast<int64_t>(i))));
      return;
    }
    out.push_back(static_cast<int64_t>(n));
  }
}

namespace {

void read_feed_forward(Reader& r, HParams& hp) {
  read_by_layer(r, hp, "feed_forward_length", kMaxWidth, hp.ffn.n_ff_of);
  hp.ffn.n_ff = hp.ffn.n_ff_of.empty()
                    ? r.integer("feed_forward_length", 0, kMaxWidth, 0)
                    : *std::max_element(hp.ffn.n_ff_of.begin(), hp.ffn.n_ff_of.end());
}

// Gemma 3n (AltUp, sparse activations) and what Gemma 4 shares with it: per-layer embeddings,
// layers that share an earlier layer's KV cache, separate sizes for layers with a window.
void read_gemma3n_and_4(Reader& r, HParams& hp) {
  hp.attention.n_layer_kv = hp.n_layer;
  if (!is_gemma3n_or_4(hp)) return;
  const bool altup = hp.arch == "gemma3n";
  const int64_t shared = r.integer("attention.shared_kv_layers", 0, hp.n_layer,
                                   altup ? std::max<int64_t>(0, hp.n_layer - 20) : 0);
  hp.attention.n_layer_kv = hp.n_layer - shared;
  hp.n_embd_per_layer =
      r.integer("embedding_length_per_layer_input", altup ? 1 : 0, kMaxWidth, altup ? -1 : 0);
  if (hp.n_layer * hp.n_embd_per_layer > kMaxPerLayerWidth) {
    r.fail(error(Code::kBadHeader, "embedding_length_per_layer_input is out of range"));
  }
  if (altup) {
    hp.altup.n_streams = r.integer("altup.num_inputs", 2, kMaxStreams, 4);
    hp.altup.active = r.integer("altup.active_idx", 0, hp.altup.n_streams - 1, 0);
    const gguf::Value* sparsity = r.raw("activation_sparsity_scale");
    for (int64_t i = 0; sparsity != nullptr && i < hp.n_layer; ++i) {
      const bool given = static_cast<uint64_t>(i) < sparsity->count;
      hp.ffn.sparsity.push_back(
          given ? static_cast<float>(sparsity->number_at(static_cast<uint64_t>(i)))
                : -std::numeric_limits<float>::infinity());
    }
    return;
  }
  hp.window.head_dim_k =
      r.integer("attention.key_length_swa", 1, kMaxWidth, hp.attention.head_dim_k);
  hp.window.head_dim_v =
      r.integer("attention.value_length_swa", 1, kMaxWidth, hp.attention.head_dim_v);
  hp.window.n_rot =
      r.integer("rope.dimension_count_swa", 0, hp.window.head_dim_k, hp.window.head_dim_k);
  if (hp.window.n_rot % 2 != 0 ||
      hp.attention.n_head * std::max(hp.window.head_dim_k, hp.window.head_dim_v) > kMaxWidth) {
    r.fail(error(Code::kBadHeader, "the head sizes of layers with a window are invalid"));
  }
}

// Llama 4: most layers see chunks of the positions; the others see all, without RoPE. Files say
// little about this.
void read_llama4(Reader& r, HParams& hp) {
  if (hp.arch != "llama4") return;
  constexpr int64_t kChunk = 8192;
  hp.window.size = r.integer("attention.sliding_window", 0, kMaxContext, kChunk);
  const gguf::Value* pattern = r.raw("attention.sliding_window_pattern");
  if (hp.window.size == 0 || (pattern != nullptr && pattern->type == gguf::ValueType::kArray)) {
    r.fail(error(Code::kUnsupportedArchitecture,
                 "this attention.sliding_window is not supported for \"llama4\""));
  }
  hp.window.pattern = r.integer("attention.sliding_window_pattern", 1, kMaxLayers, 4);
  hp.window.freq_base = r.real("rope.freq_base_swa", hp.rope.freq_base);
  hp.temperature.scale = r.real("attention.temperature_scale", 0.1f);
  hp.temperature.length = r.integer("attention.temperature_length", 1, kMaxContext, kChunk);
  hp.temperature.offset = 1;
}

// Expert groups: experts are chosen from the best groups only (https://arxiv.org/abs/2412.19437).
void read_expert_groups(Reader& r, HParams& hp) {
  hp.moe.n_group = r.integer("expert_group_count", 0, kMaxExperts, 1);
  hp.moe.n_group_used = r.integer("expert_group_used_count", 0, kMaxExperts, 0);
  if (hp.moe.n_group <= 1) {
    hp.moe.n_group = hp.moe.n_group_used = 1;
    return;
  }
  const int64_t size = hp.moe.n_expert / hp.moe.n_group;
  if (hp.moe.n_expert % hp.moe.n_group != 0 || hp.moe.n_group_used > hp.moe.n_group ||
      hp.moe.n_expert_used > hp.moe.n_group_used * size) {
    r.fail(error(Code::kBadHeader,
                 "choosing from %lld of %lld groups does not allow %lld of %lld experts",
                 ll(hp.moe.n_group_used), ll(hp.moe.n_group), ll(hp.moe.n_expert_used),
                 ll(hp.moe.n_expert)));
  }
}

void read_experts(Reader& r, HParams& hp) {
  hp.moe.n_expert = r.integer("expert_count", 0, kMaxExperts, 0);
  hp.moe.n_expert_used = r.integer("expert_used_count", 0, kMaxExperts, 0);
  hp.moe.n_ff_expert = r.integer("expert_feed_forward_length", 0, kMaxWidth, hp.ffn.n_ff);
  hp.moe.weights_scale = r.real("expert_weights_scale", 0);
  hp.moe.gating = r.integer("expert_gating_func", 0, 255, 0);
  if (hp.moe.gating > kMaxExpertGating) {
    r.fail(error(Code::kUnsupportedArchitecture, "%s.expert_gating_func %lld is not supported",
                 hp.arch.c_str(), ll(hp.moe.gating)));
  }
  if (const gguf::Value* norm = r.raw("expert_weights_norm")) {
    hp.moe.weights_norm = norm->as_bool().value_or(norm->as_u64().value_or(1) != 0) ? 1 : 0;
  }
  if (hp.moe.n_expert_used > hp.moe.n_expert ||
      (hp.moe.n_expert > 0 && hp.moe.n_expert_used == 0)) {
    r.fail(error(Code::kBadHeader, "using %lld of %lld experts is not possible",
                 ll(hp.moe.n_expert_used), ll(hp.moe.n_expert)));
  }
  if (hp.n_layer * hp.moe.n_expert > kMaxExpertsInAll) {
    r.fail(error(Code::kBadHeader, "%lld layers of %lld experts exceed the limit of %lld experts",
                 ll(hp.n_layer), ll(hp.moe.n_expert), ll(kMaxExpertsInAll)));
  }
  read_expert_groups(r, hp);
  if (hp.arch == "grovemoe") {
    hp.moe.n_expert_of_group = r.integer("experts_per_group", 1, kMaxExperts, -1);
    hp.moe.n_ff_group = r.integer("expert_chunk_feed_forward_length", 1, kMaxWidth, -1);
    hp.moe.group_scale = r.real("expert_group_scale", 1);
    if (hp.moe.n_expert_of_group < 1 || hp.moe.n_expert % hp.moe.n_expert_of_group != 0) {
      r.fail(error(Code::kBadHeader, "%lld experts cannot be divided into groups of %lld",
                   ll(hp.moe.n_expert), ll(hp.moe.n_expert_of_group)));
    }
  }
  if (hp.moe.n_expert == 0 && hp.ffn.n_ff == 0 && hp.attention.n_head > 0) {
    r.fail(error(Code::kBadHeader, "the metadata lacks %s.feed_forward_length", hp.arch.c_str()));
  }
}

void read_recurrent(Reader& r, HParams& hp) {
  RecurrentHParams& rec = hp.recurrent;
  rec.conv_kernel = r.integer("ssm.conv_kernel", 0, kMaxTaps, 0);
  rec.inner = r.integer("ssm.inner_size", 0, kMaxWidth, 0);
  rec.state = r.integer("ssm.state_size", 0, kMaxState, 0);
  rec.rank = r.integer("ssm.time_step_rank", 0, kMaxWidth, 0);
  rec.groups = r.integer("ssm.group_count", 0, kMaxHeads, 0);
  if (const gguf::Value* norms = r.raw("ssm.dt_b_c_rms")) {
    rec.norms = norms->as_bool().value_or(false);
  }
  rec.attention_interval = r.integer("full_attention_interval", 1, kMaxLayers, 4);
  rec.head_size = r.integer("wkv.head_size", 0, kMaxState, 0);
  rec.head_size = r.integer("kda.head_dim", 0, kMaxState, rec.head_size);
  rec.rescale_interval = r.integer("rescale_every_n_layers", 0, kMaxLayers, 0);
  if (r.integer("token_shift_count", 0, 2, 2) != 2) {
    r.fail(error(Code::kUnsupportedArchitecture, "%s.token_shift_count is not 2", hp.arch.c_str()));
  }
  // Redundant: the tensors' shapes imply these.
  for (const char* key : {"time_mix_extra_dim", "time_decay_extra_dim", "attention.decay_lora_rank",
                          "attention.iclr_lora_rank", "attention.value_residual_mix_lora_rank",
                          "attention.gate_lora_rank"}) {
    static_cast<void>(r.integer(key, 0, kMaxWidth, 0));
  }
}

void read_direction(Reader& r, HParams& hp) {
  const gguf::Value* causal = r.raw("attention.causal");
  const bool own = !reads_whole_texts(hp.arch);
  hp.attention.causal = causal == nullptr ? own : causal->as_bool().value_or(own);
  const int64_t last = static_cast<int64_t>(Pooling::kRank);
  hp.pooling = static_cast<Pooling>(r.integer("pooling_type", 0, last, 0));
}

// Learned parameters of xIELU. The keys lack the family's name; each has a value per layer, or one
// for all.
void read_xielu(Reader& r, HParams& hp) {
  const char* const keys[] = {"xielu.alpha_p", "xielu.alpha_n", "xielu.beta", "xielu.eps"};
  const gguf::Value* values[4];
  for (size_t i = 0; i < 4; ++i) {
    values[i] = r.raw(keys[i]);
    if (values[i] == nullptr) values[i] = r.with_full_key(keys[i]);
    const bool array = values[i] != nullptr && values[i]->type == gguf::ValueType::kArray;
    if (values[i] == nullptr || (array && values[i]->count < static_cast<uint64_t>(hp.n_layer))) {
      r.fail(error(Code::kBadHeader, "the metadata lacks %s for every layer", keys[i]));
      return;
    }
  }
  const auto softplus = [](double x) { return x > 20 ? x : std::log(1 + std::exp(x)); };
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    double x[4];
    for (size_t i = 0; i < 4; ++i) {
      const gguf::Value& v = *values[i];
      x[i] = v.type == gguf::ValueType::kArray ? v.number_at(static_cast<uint64_t>(layer))
                                               : v.as_f64().value_or(NAN);
      if (!(std::fabs(x[i]) < 1e6)) {
        r.fail(error(Code::kBadHeader, "%s of layer %lld is out of range", keys[i], ll(layer)));
        return;
      }
    }
    hp.ffn.xielu.push_back({static_cast<float>(softplus(x[0])),
                            static_cast<float>(x[2] + softplus(x[1])), static_cast<float>(x[2]),
                            static_cast<float>(x[3])});
  }
}

// Keys that only the families of family_dense.cpp support; other families reject them.
void read_dense(Reader& r, HParams& hp) {
  hp.attention.clamp_qkv = r.real("attention.clamp_kqv", 0);
  const bool given = r.raw("attention.max_alibi_bias") != nullptr;
  if (given) hp.attention.alibi = r.real("attention.max_alibi_bias", 0);
  if (hp.attention.clamp_qkv < 0 ||
      (given && !(hp.attention.alibi >= 0 && hp.attention.alibi <= 1e6f))) {
    r.fail(
        error(Code::kBadHeader, "attention.clamp_kqv or attention.max_alibi_bias is out of range"));
  }
  if (const gguf::Value* parallel = r.raw("use_parallel_residual")) {
    hp.parallel_residual = parallel->as_bool().value_or(true);
  }
  if (hp.arch == "exaone4" && hp.n_layer == 64 && hp.window.size == 0) {
    hp.window.size = 4096;  // may be missing in files of the 32B model
  }
  if (hp.arch == "bitnet") hp.ffn.hidden_activation = r.text("hidden_activation");
  if (hp.arch == "apertus") read_xielu(r, hp);
  if (hp.arch == "minicpm") {  // MiniCPM 1 and 2, whose files lack these
    hp.scales.embedding = 12;
    hp.scales.residual = static_cast<float>(1.4 / std::sqrt(static_cast<double>(hp.n_layer)));
    hp.scales.logit = static_cast<float>(hp.n_embd) / 256;
  }
}

// T5. The decoder's layers come after the encoder's.
void read_t5(Reader& r, HParams& hp) {
  if (hp.arch != "t5" && hp.arch != "t5encoder") return;
  hp.attention.n_relative_buckets =
      r.integer("attention.relative_buckets_count", 4, kMaxRelativeBuckets, -1);
  if (hp.arch == "t5encoder") return;
  hp.encoder.n_layer = hp.n_layer;
  hp.n_layer += r.integer("decoder_block_count", 1, kMaxLayers, hp.n_layer);
  hp.encoder.decoder_start =
      static_cast<int32_t>(r.integer("decoder_start_token_id", 0, hp.n_vocab - 1, 0));
}

int64_t vocabulary_size(const gguf::Header& header, Reader& r) {
  const gguf::Tensor* embedding = header.find_tensor("token_embd.weight");
  if (embedding == nullptr) embedding = header.find_tensor(gguf::kEmbeddingRest);
  if (embedding != nullptr) {
    if (embedding->ne[1] <= static_cast<uint64_t>(kMaxVocab)) {
      return static_cast<int64_t>(embedding->ne[1]);
    }
    return 0;
  }
  return r.integer("vocab_size", 1, kMaxVocab, 1);
}

}  // namespace

Result<HParams> read_hparams(const gguf::Header& header) {
  const auto arch = header.get_string("general.architecture");
  if (!arch) return error(Code::kBadHeader, "the metadata lacks general.architecture");
  HParams hp;
  hp.arch = std::string(arch->substr(0, 64));
  const Family* family = find_family(hp.arch);
  if (family == nullptr) {
    return error(Code::kUnsupportedArchitecture,
                 "the model family \"%s\" is not supported; see docs/models.md", hp.arch.c_str());
  }
  if (const auto name = header.get_string("general.name")) {
    hp.name = gguf::printable(*name, 256);
  }
  Reader r(header, hp.arch + ".");
  hp.n_vocab = vocabulary_size(header, r);
  if (hp.n_vocab < 1) return error(Code::kBadHeader, "the vocabulary size is out of range");
  hp.n_ctx_train = r.integer("context_length", 1, kMaxContext, -1);
  hp.n_embd = r.integer("embedding_length", 1, kMaxWidth, -1);
  hp.n_layer = r.integer("block_count", 1, kMaxLayers, -1);
  if (family->skips_nextn) {
    hp.n_layer_nextn = r.integer("nextn_predict_layers", 0, kMaxLayers, 0);
  }
  if (hp.n_layer_nextn >= hp.n_layer) {
    r.fail(error(Code::kBadHeader, "nextn_predict_layers is %lld, but there are only %lld layers",
                 ll(hp.n_layer_nextn), ll(hp.n_layer)));
  }
  hp.n_layer -= hp.n_layer_nextn;
  if (!r.status().ok()) return r.status();
  read_feed_forward(r, hp);
  if (!r.status().ok()) return r.status();
  read_heads(r, hp, family->recurrent);
  if (!r.status().ok()) return r.status();
  read_direction(r, hp);
  read_rope(r, hp);
  read_latent(r, hp);
  read_gemma3n_and_4(r, hp);
  read_experts(r, hp);
  const bool dense = family->build == build_dense;
  read_windows(r, hp, dense);
  if (dense) read_dense(r, hp);
  if (family->recurrent) read_recurrent(r, hp);
  read_llama4(r, hp);
  read_t5(r, hp);
  hp.norm.eps =
      r.real("attention.layer_norm_rms_epsilon", r.real("attention.layer_norm_epsilon", 1e-5f));
  hp.attention.scale = r.real("attention.scale", 0);
  hp.attention.softcap = r.real("attn_logit_softcapping", 0);
  if (hp.arch == "dbrx") {
    hp.attention.clamp_qkv = r.real("attention.clamp_kqv", 0);
    if (hp.attention.clamp_qkv < 0) {
      r.fail(error(Code::kBadHeader, "%s.attention.clamp_kqv is negative", hp.arch.c_str()));
    }
  }
  hp.scales.logit_softcap = r.real("final_logit_softcapping", hp.arch == "gemma3n" ? 30 : 0);
  hp.scales.embedding = r.real("embedding_scale", hp.scales.embedding);
  hp.media.n_deepstack = r.integer("n_deepstack_layers", 0, hp.n_layer, 0);
  hp.media.sees_all = hp.arch == "gemma3";
  hp.scales.residual = r.real("residual_scale", hp.scales.residual);
  hp.scales.logit = r.real("logit_scale", hp.scales.logit);
  if (hp.scales.logit == 0) hp.scales.logit = 1;
  hp.recurrent.short_conv_kernel = r.integer("shortconv.l_cache", 0, 64, 0);
  if (const gguf::Value* offset = r.with_full_key("sluice.norm_offset")) {
    hp.norm.offset = static_cast<float>(offset->as_f64().value_or(0));
  }
  const gguf::Value* neox = r.with_full_key("sluice.rope_neox");
  hp.rope.neox = family->neox || (neox != nullptr && neox->as_bool().value_or(false)) ||
                 hp.rope.sections[0] > 0;  // GLM-4 with vision
  if (!r.status().ok()) return r.status();
  SLUICE_RETURN_IF_ERROR(check_keys(header, hp.arch, r.read(), &hp.metadata_hash));
  return hp;
}

}  // namespace sluice::model

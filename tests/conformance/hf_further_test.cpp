// Checkpoints of the families described by name tables (src/hf/architecture.h). A fixture's tensors
// are stored as transformers stores them (heads in its order, logarithms, fused matrices, blocks
// and scales separate) and its metadata under config.json's keys. They must compute what the GGUF
// file does, at the smallest budget too.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "convert/quantize.h"
#include "fixtures_util.h"
#include "gguf/write.h"
#include "kernels/reference/reference.h"
#include "tests/unit/hf_directory.h"

namespace sluice::test {
namespace {

using nlohmann::json;

struct Weights {
  gguf::Tensor t;
  std::string data;
};
using Tensors = std::map<std::string, Weights>;

std::vector<float> floats_of(const Weights& w) {
  std::vector<float> out(w.t.ne[0] * w.t.rows());
  kernels::reference::dequantize(static_cast<kernels::Type>(w.t.type),
                                 reinterpret_cast<const uint8_t*>(w.data.data()),
                                 static_cast<int64_t>(out.size()), out.data());
  return out;
}

std::string bytes_of(const std::vector<float>& x) {
  return {reinterpret_cast<const char*>(x.data()), x.size() * 4};
}

// One case: the mapping of names, config.json, and other changes.
struct FurtherCase {
  const char* fixture;
  std::map<std::string, std::string> names;  // GGUF name (part of a layer, or whole) to theirs
  json config;
  std::string prefix = "model.", layers = "layers.";
  bool norm_offset = false;
  double max_nmse = 0;  // 0: bit-identical
};

std::map<std::string, std::string> usual_names() {
  return {{"token_embd", "embed_tokens"},
          {"output_norm", "norm"},
          {"output", "lm_head"},
          {"attn_norm", "input_layernorm"},
          {"attn_q", "self_attn.q_proj"},
          {"attn_k", "self_attn.k_proj"},
          {"attn_v", "self_attn.v_proj"},
          {"attn_output", "self_attn.o_proj"},
          {"attn_q_norm", "self_attn.q_norm"},
          {"attn_k_norm", "self_attn.k_norm"},
          {"ffn_gate", "mlp.gate_proj"},
          {"ffn_up", "mlp.up_proj"},
          {"ffn_down", "mlp.down_proj"}};
}

std::map<std::string, std::string> with(std::map<std::string, std::string> names,
                                        const std::map<std::string, std::string>& more) {
  for (const auto& [ours, theirs] : more) names[ours] = theirs;
  return names;
}

json usual_config(const char* type, int layers) {
  return {{"model_type", type},
          {"vocab_size", 280},
          {"num_hidden_layers", layers},
          {"max_position_embeddings", 512},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"hidden_size", 64},
          {"intermediate_size", 96},
          {"rms_norm_eps", 9.999999747378752e-06}};
}

FurtherCase qwen35(bool mixture) {
  json c = usual_config(mixture ? "qwen3_5_moe_text" : "qwen3_5_text", 4);
  c.update(json{{"head_dim", 32},
                {"linear_num_key_heads", 2},
                {"linear_num_value_heads", 4},
                {"linear_key_head_dim", 16},
                {"linear_value_head_dim", 16},
                {"rope_parameters",
                 {{"rope_type", "default"}, {"rope_theta", 1e7}, {"partial_rotary_factor", 0.25}}},
                {"layer_types",
                 {"linear_attention", "linear_attention", "linear_attention", "full_attention"}}});
  if (mixture) {
    c.update(json{{"num_experts", 4}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 32}});
  }
  // As the text model inside a vision model.
  const json whole = {{"model_type", mixture ? "qwen3_5_moe" : "qwen3_5"}, {"text_config", c}};
  return {mixture ? "qwen35moe" : "qwen35",
          with(usual_names(), {{"post_attention_norm", "post_attention_layernorm"},
                               {"attn_qkv", "linear_attn.in_proj_qkv"},
                               {"attn_gate", "linear_attn.in_proj_z"},
                               {"ssm_beta", "linear_attn.in_proj_b"},
                               {"ssm_alpha", "linear_attn.in_proj_a"},
                               {"ssm_conv1d", "linear_attn.conv1d"},
                               {"ssm_norm", "linear_attn.norm"},
                               {"ssm_out", "linear_attn.out_proj"},
                               {"ssm_dt.bias", "linear_attn.dt_bias"},
                               {"ssm_a", "linear_attn.A_log"},
                               {"ffn_gate_inp", "mlp.gate"},
                               {"ffn_down_exps.weight", "mlp.experts.down_proj"},
                               {"ffn_gate_up_exps.weight", "mlp.experts.gate_up_proj"},
                               {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
                               {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
                               {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
                               {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"}}),
          whole,
          "model.language_model.",
          "layers.",
          true,
          1e-8};
}

std::map<std::string, std::string> gemma_names() {
  return with(usual_names(), {{"post_attention_norm", "post_attention_layernorm"},
                              {"ffn_norm", "pre_feedforward_layernorm"},
                              {"post_ffw_norm", "post_feedforward_layernorm"},
                              {"post_ffw_norm_1", "post_feedforward_layernorm_1"},
                              {"pre_ffw_norm_2", "pre_feedforward_layernorm_2"},
                              {"post_ffw_norm_2", "post_feedforward_layernorm_2"},
                              {"inp_gate", "per_layer_input_gate"},
                              {"proj", "per_layer_projection"},
                              {"post_norm", "post_per_layer_input_norm"},
                              {"per_layer_token_embd", "embed_tokens_per_layer"},
                              {"per_layer_model_proj", "per_layer_model_projection"},
                              {"per_layer_proj_norm", "per_layer_projection_norm"},
                              {"altup_proj", "altup_projections"},
                              {"altup_unembd_proj", "altup_unembed_projections"},
                              {"altup_router", "altup.modality_router"},
                              {"altup_router_norm", "altup.router_norm"},
                              {"altup_predict_coef", "altup.prediction_coefs"},
                              {"altup_correct_coef", "altup.correction_coefs"},
                              {"altup_correct_scale.weight", "altup.correct_output_scale"},
                              {"laurel_l", "laurel.linear_left"},
                              {"laurel_r", "laurel.linear_right"},
                              {"laurel_post_norm", "laurel.post_laurel_norm"},
                              {"layer_output_scale.weight", "layer_scalar"},
                              {"ffn_gate_inp", "router.proj"},
                              {"ffn_gate_inp.scale", "router.scale"},
                              {"ffn_down_exps.scale", "router.per_expert_scale"},
                              {"ffn_gate_up_exps.weight", "experts.gate_up_proj"},
                              {"ffn_down_exps.weight", "experts.down_proj"}});
}

json windows(int layers, int period) {
  json out = json::array();
  for (int i = 1; i <= layers; ++i) {
    out.push_back(i % period == 0 ? "full_attention" : "sliding_attention");
  }
  return out;
}

FurtherCase gemma3n() {
  json c = usual_config("gemma3n_text", 22);
  c.update(json{{"hidden_size", 32},
                {"intermediate_size", json(std::vector<int>(22, 64))},
                {"num_attention_heads", 2},
                {"num_key_value_heads", 1},
                {"head_dim", 16},
                {"rope_theta", 1e6},
                {"sliding_window", 12},
                {"layer_types", windows(22, 5)},
                {"num_kv_shared_layers", 2},
                {"final_logit_softcapping", 30},
                {"hidden_size_per_layer_input", 256}});
  c["layer_types"][21] = "full_attention";
  json sparsity = json::array();  // as in the fixture: ten layers of 95 %
  for (int i = 0; i < 22; ++i) sparsity.push_back(i < 10 ? 0.95 : 0.0);
  c["activation_sparsity_pattern"] = sparsity;
  return {"gemma3n",
          gemma_names(),
          json{{"model_type", "gemma3n"}, {"text_config", c}},
          "model.language_model.",
          "layers.",
          false,
          1e-8};
}

json gemma4_config(int layers) {
  json c = usual_config("gemma4_text", layers);
  c.update(json{
      {"head_dim", 16},
      {"global_head_dim", 32},
      {"sliding_window", 12},
      {"final_logit_softcapping", 30},
      {"rope_parameters",
       {{"full_attention",
         {{"rope_type", "proportional"}, {"rope_theta", 1e6}, {"partial_rotary_factor", 0.25}}},
        {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}}}}});
  return c;
}

FurtherCase gemma4() {
  json c = gemma4_config(6);
  c.update(json{{"layer_types",
                 {"sliding_attention", "sliding_attention", "sliding_attention", "full_attention",
                  "sliding_attention", "full_attention"}},
                {"num_kv_shared_layers", 2},
                {"use_double_wide_mlp", true},
                {"hidden_size_per_layer_input", 32}});
  return {"gemma4", gemma_names(), c};
}

FurtherCase gemma4_moe() {
  json c = gemma4_config(4);
  c.update(json{{"layer_types",
                 {"sliding_attention", "full_attention", "sliding_attention", "full_attention"}},
                {"attention_k_eq_v", true},
                {"num_key_value_heads", 4},
                {"num_global_key_value_heads", 2},
                {"hidden_size_per_layer_input", 0},
                {"enable_moe_block", true},
                {"num_experts", 4},
                {"top_k_experts", 2},
                {"moe_intermediate_size", 32}});
  return {"gemma4-moe", gemma_names(), c};
}

FurtherCase granite(bool dense) {
  json c = usual_config("granitemoehybrid", dense ? 3 : 4);
  c.update(json{{"intermediate_size", 32},
                {"shared_intermediate_size", dense ? 96 : 64},
                {"layer_types", dense ? json{"mamba", "attention", "mamba"}
                                      : json{"mamba", "mamba", "attention", "mamba"}},
                {"position_embedding_type", "nope"},
                {"mamba_n_heads", 8},
                {"mamba_d_head", 16},
                {"mamba_d_state", 16},
                {"mamba_n_groups", 2},
                {"mamba_d_conv", 4},
                {"attention_multiplier", 0.125},
                {"embedding_multiplier", 3},
                {"residual_multiplier", 0.4},
                {"logits_scaling", 1.5},
                {"num_local_experts", dense ? 0 : 4},
                {"num_experts_per_tok", dense ? 0 : 2}});
  return {dense ? "granitehybrid-dense" : "granitehybrid",
          with(usual_names(), {{"ffn_norm", "post_attention_layernorm"},
                               {"ssm_in", "mamba.in_proj"},
                               {"ssm_conv1d", "mamba.conv1d"},
                               {"ssm_dt.bias", "mamba.dt_bias"},
                               {"ssm_a", "mamba.A_log"},
                               {"ssm_d", "mamba.D"},
                               {"ssm_norm", "mamba.norm"},
                               {"ssm_out", "mamba.out_proj"},
                               {"ffn_gate_inp", "block_sparse_moe.router.layer"},
                               {"ffn_gate_up_exps", "block_sparse_moe.input_linear"},
                               {"ffn_down_exps", "block_sparse_moe.output_linear"},
                               {"ffn_gate_up_shexp", "shared_mlp.input_linear"},
                               {"ffn_down_shexp", "shared_mlp.output_linear"},
                               {"ffn_gate_up", "shared_mlp.input_linear"},
                               {"ffn_down", "shared_mlp.output_linear"}}),
          c,
          "model.",
          "layers.",
          false,
          1e-8};
}

FurtherCase gpt_oss() {
  json c = usual_config("gpt_oss", 4);
  c.update(json{{"intermediate_size", 32},
                {"head_dim", 16},
                {"rope_theta", 150000},
                {"rope_scaling",
                 {{"rope_type", "yarn"}, {"factor", 8}, {"original_max_position_embeddings", 32}}},
                {"num_local_experts", 4},
                {"num_experts_per_tok", 2},
                {"sliding_window", 12},
                {"quantization_config", {{"quant_method", "mxfp4"}}}});
  return {"gpt-oss",
          with(usual_names(), {{"post_attention_norm", "post_attention_layernorm"},
                               {"attn_sinks.weight", "self_attn.sinks"},
                               {"ffn_gate_inp", "mlp.router"},
                               {"ffn_down_exps.bias", "mlp.experts.down_proj_bias"}}),
          c};
}

// --- from GGUF to a checkpoint

class Checkpoint {
 public:
  explicit Checkpoint(const FurtherCase& c) : c_(c) {}

  // Fused experts, as in the checkpoints of some families.
  void join(Tensors* all, const std::string& layer, const char* kind) {
    const auto gate = all->find(layer + "ffn_gate" + kind + ".weight");
    const auto up = all->find(layer + "ffn_up" + kind + ".weight");
    if (gate == all->end() || up == all->end()) return;
    Weights both = gate->second;
    const uint64_t matrices = both.t.n_dims == 3 ? both.t.ne[2] : 1;
    const size_t n = both.data.size() / matrices;
    both.data.clear();
    for (uint64_t e = 0; e < matrices; ++e) {
      both.data += gate->second.data.substr(e * n, n) + up->second.data.substr(e * n, n);
    }
    both.t.ne[1] *= 2;
    all->erase(gate);
    all->erase(up);
    (*all)[layer + "ffn_gate_up" + kind + ".weight"] = both;
  }

  std::string write(Tensors all) {
    const std::string fixture = c_.fixture;
    const bool granite = fixture.starts_with("granite");
    for (int i = 0; i < 32; ++i) {
      const std::string layer = "blk." + std::to_string(i) + ".";
      if (granite || fixture == "qwen35moe") join(&all, layer, "_exps");
      if (granite) join(&all, layer, "_shexp");
      if (granite) join(&all, layer, "");
    }
    for (const auto& [name, w] : all) add(name, w);
    return out_.build();
  }

 private:
  std::string place(const std::string& name, std::string* part, std::string* ending) const {
    std::string at;
    *part = name;
    if (name.starts_with("blk.")) {
      const size_t dot = name.find('.', 4);
      at = c_.layers + name.substr(4, dot - 3);
      *part = name.substr(dot + 1);
    }
    ending->clear();
    if (c_.names.contains(*part)) return at + c_.names.at(*part);
    const size_t dot = part->rfind('.');
    EXPECT_NE(dot, std::string::npos) << name;
    *ending = part->substr(dot);
    part->resize(dot);
    EXPECT_TRUE(c_.names.contains(*part)) << name;
    return at + c_.names.at(*part);
  }

  // Reorders GGUF's value heads to the checkpoint's order, `unit` bytes each.
  static std::string grouped(const std::string& data, size_t skip, size_t unit) {
    constexpr size_t kKeys = 2, kShared = 2;
    std::string out = data;
    for (size_t j = 0; j < kShared; ++j) {
      for (size_t g = 0; g < kKeys; ++g) {
        out.replace(skip + (g * kShared + j) * unit, unit, data, skip + (j * kKeys + g) * unit,
                    unit);
      }
    }
    return out;
  }

  void turn(const std::string& part, Weights* w) const {
    const bool qwen = std::string(c_.fixture).starts_with("qwen35");
    if (part == "ssm_a") {
      std::vector<float> x = floats_of(*w);
      for (float& v : x) v = static_cast<float>(std::log(-static_cast<double>(v)));
      w->data = bytes_of(x);
      w->t.type = gguf::TensorType::kF32;
    }
    const bool norm = part.ends_with("_norm") && part != "ssm_norm";
    if (c_.norm_offset && norm) {
      std::vector<float> x = floats_of(*w);
      for (float& v : x) v -= 1;
      w->data = bytes_of(x);
    }
    if (!qwen) return;
    const size_t row = w->t.n_dims == 1 ? 4 : w->data.size() / w->t.rows();
    constexpr size_t kHeads = 4, kQueriesAndKeys = 64;
    if (part == "attn_gate" || part == "ssm_beta" || part == "ssm_alpha" || part == "ssm_a" ||
        part == "ssm_dt.bias") {
      w->data = grouped(w->data, 0, w->data.size() / kHeads);
    } else if (part == "attn_qkv" || part == "ssm_conv1d") {
      const size_t skip = kQueriesAndKeys * row;
      w->data = grouped(w->data, skip, (w->data.size() - skip) / kHeads);
    } else if (part == "ssm_out") {
      std::string out;
      for (size_t at = 0; at < w->data.size(); at += row) {
        out += grouped(w->data.substr(at, row), 0, row / kHeads);
      }
      w->data = out;
    }
  }

  void add(const std::string& name, Weights w) {
    if (name == "rope_freqs.weight") return;
    if (w.t.type == gguf::TensorType::kMXFP4) return add_blocks(name, w);
    if (name.find("gate_exps.bias") != std::string::npos ||
        name.find("up_exps.bias") != std::string::npos) {
      return add_biases(name, w);
    }
    std::string part, ending;
    const std::string theirs = place(name, &part, &ending);
    turn(part, &w);
    std::vector<uint64_t> shape;
    for (uint32_t i = w.t.n_dims; i-- > 0;) shape.push_back(w.t.ne[i]);
    if (part == "ssm_conv1d" && shape.size() == 2) shape.insert(shape.begin() + 1, 1);
    const bool flat = part == "ssm_a" || part == "ssm_d" || part == "ssm_norm";
    if (flat) shape = {w.t.ne[0] * w.t.rows()};
    const std::string at = (theirs == "lm_head" ? "" : c_.prefix) + theirs;
    const char* dtype = w.t.type == gguf::TensorType::kF32 ? "F32" : "F16";
    if (!part.starts_with("altup_") || w.t.n_dims != 3) {
      out_.tensor(at + ending, dtype, shape, w.data);
      return;
    }
    const size_t n = w.data.size() / w.t.ne[2];
    for (uint64_t i = 0; i < w.t.ne[2]; ++i) {
      out_.tensor(at + "." + std::to_string(i) + ending, dtype, {w.t.ne[1], w.t.ne[0]},
                  w.data.substr(i * n, n));
    }
  }

  std::string experts_of(const std::string& name) const {
    return c_.prefix + c_.layers + name.substr(4, name.find('.', 4) - 3) + "mlp.experts.";
  }

  // Even values are the gate's biases.
  void add_biases(const std::string& name, const Weights& w) {
    std::string& other = kept_[experts_of(name)];
    if (other.empty()) {
      other = w.data;  // "gate" comes before "up"
      return;
    }
    std::string both;
    for (size_t at = 0; at < w.data.size(); at += 4) {
      both += other.substr(at, 4) + w.data.substr(at, 4);
    }
    out_.tensor(experts_of(name) + "gate_up_proj_bias", "F32", {w.t.ne[1], 2 * w.t.ne[0]}, both);
    other.clear();
  }

  // Splits GGUF's blocks of 17 bytes into a scale and 16 bytes of adjacent nibbles.
  static void take_apart(const std::string& data, size_t at, std::string* scales,
                         std::string* blocks) {
    scales->push_back(data[at]);
    const auto value = [&](size_t i) {
      return static_cast<uint8_t>(data[at + 1 + i % 16]) >> (i / 16 * 4) & 15;
    };
    for (size_t i = 0; i < 32; i += 2) {
      blocks->push_back(static_cast<char>(value(i) | value(i + 1) << 4));
    }
  }

  void add_blocks(const std::string& name, const Weights& w) {
    const bool down = name.find("ffn_down") != std::string::npos;
    std::string& other = kept_[experts_of(name) + "blocks"];
    if (!down && other.empty()) {
      other = w.data;
      return;
    }
    const size_t row = w.t.ne[0] / 32 * 17;
    std::string scales, blocks;
    for (size_t at = 0; at < w.data.size(); at += row) {
      for (size_t b = at; !down && b < at + row; b += 17) take_apart(other, b, &scales, &blocks);
      for (size_t b = at; b < at + row; b += 17) take_apart(w.data, b, &scales, &blocks);
    }
    const std::string at = experts_of(name) + (down ? "down_proj_" : "gate_up_proj_");
    const std::vector<uint64_t> shape = {w.t.ne[2], w.t.ne[1] * (down ? 1 : 2), w.t.ne[0] / 32};
    out_.tensor(at + "scales", "U8", shape, scales);
    out_.tensor(at + "blocks", "U8", {shape[0], shape[1], shape[2], 16}, blocks);
    if (!down) other.clear();
  }

  const FurtherCase& c_;
  SafetensorsBuilder out_;
  std::map<std::string, std::string> kept_;
};

class HfFurther : public testing::TestWithParam<FurtherCase> {
 protected:
  void SetUp() override {
    const std::string shared = shared_folder("families");
    if (shared.empty()) GTEST_SKIP() << "../shared/fixtures/families is absent";
    gguf_ = shared + "/" + GetParam().fixture + ".gguf";
    std::string name = (std::filesystem::temp_directory_path() / "sluice-further-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    Tensors all = read();
    if (std::string(GetParam().fixture) == "gpt-oss") quantize_experts(&all);
    write("tokenizer.json", byte_level_tokenizer());
    write("config.json", GetParam().config.dump());
    write("model.safetensors", Checkpoint(GetParam()).write(all));
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }
  void write(const char* name, const std::string& content) {
    std::ofstream(folder_ / name, std::ios::binary) << content;
  }
  Tensors read() {
    auto header = native::read_header(gguf_, {});
    EXPECT_TRUE(header.ok()) << header.status().message();
    std::ifstream in(gguf_, std::ios::binary);
    Tensors out;
    if (!header.ok()) return out;
    for (const gguf::Tensor& t : header->header.tensors) {
      std::string data(t.bytes, '\0');
      in.seekg(static_cast<std::streamoff>(t.offset));
      in.read(data.data(), static_cast<std::streamsize>(data.size()));
      out[std::string(t.name)] = {t, data};
    }
    return out;
  }
  // Quantizes the experts to MXFP4, in a GGUF file of their own.
  void quantize_experts(Tensors* all) {
    auto header = native::read_header(gguf_, {});
    ASSERT_TRUE(header.ok());
    const auto quantize = convert::best_quantizers().of(kernels::Type::kMXFP4);
    for (gguf::Tensor& t : header->header.tensors) {
      if (!t.name.ends_with("_exps.weight")) continue;
      Weights& w = all->at(std::string(t.name));
      const std::vector<float> x = floats_of(w), ones(x.size(), 1.0f);
      t.type = w.t.type = gguf::TensorType::kMXFP4;
      ASSERT_TRUE(gguf::set_tensor_bytes(&t).ok());
      w.data.assign(t.bytes, '\0');
      quantize(x.data(), ones.data(), static_cast<int64_t>(x.size()),
               reinterpret_cast<uint8_t*>(w.data.data()));
    }
    std::string file = gguf::place_and_write(&header->header);
    for (const gguf::Tensor& t : header->header.tensors) {
      file.resize(std::max<size_t>(file.size(), t.offset + t.bytes));
      file.replace(t.offset, t.bytes, all->at(std::string(t.name)).data);
    }
    write("reference.gguf", file);
    gguf_ = (folder_ / "reference.gguf").string();
  }
  static session::EngineOptions options() {
    session::EngineOptions o;
    o.n_ctx = 16;
    o.n_threads = 1;
    o.logits_rows = 4;
    return o;
  }
  static std::vector<float> logits(const std::string& path, uint64_t budget) {
    session::EngineOptions o = options();
    o.memory_budget = budget;
    Opened opened = open_model(path, o);
    if (opened.session == nullptr) return {};
    // At the smallest budget batches have one token.
    return all_logits(opened, {1, 5, 9, 40, 70, 101, 200, 3}, budget == 0 ? 4 : 1);
  }
  void refused(const json& change, const char* word) {
    json c = GetParam().config;
    (c.contains("text_config") ? c["text_config"] : c).update(change);
    write("config.json", c.dump());
    const Status status = native::read_header(folder_.string(), {}).status();
    EXPECT_FALSE(status.ok()) << word;
    EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
  }

  std::string gguf_;
  std::filesystem::path folder_;
};

TEST_P(HfFurther, EqualsTheGgufFile) {
  const std::vector<float> expected = logits(gguf_, 0);
  ASSERT_EQ(expected.size(), size_t{8 * 280});
  const std::vector<float> ours = logits(folder_.string(), 0);
  ASSERT_EQ(ours.size(), expected.size());
  if (GetParam().max_nmse == 0) {
    EXPECT_EQ(ours, expected);
  } else {
    EXPECT_LT(nmse(ours.data(), expected.data(), ours.size()), GetParam().max_nmse);
  }
  EXPECT_EQ(logits(folder_.string(), smallest_budget(folder_.string(), options())), ours);
}

TEST_P(HfFurther, ErrorsNameWhatIsUnsupported) {
  refused({{"num_hidden_layers", 1 << 20}}, "num_hidden_layers");
  refused({{"vocab_size", 0}}, "vocab_size");
  const bool gemma = std::string(GetParam().fixture).starts_with("gemma");
  refused({{gemma ? "hidden_activation" : "hidden_act", "relu"}},
          gemma ? "hidden_activation" : "hidden_act");
  refused({{"quantization_config", {{"quant_method", "gptq"}}}}, "quantization_config");
  refused({{"layer_types", {1, 2}}}, "layer_types");
}

INSTANTIATE_TEST_SUITE_P(Families, HfFurther,
                         testing::Values(qwen35(false), qwen35(true), gemma3n(), gemma4(),
                                         gemma4_moe(), granite(false), granite(true), gpt_oss()),
                         [](const auto& info) {
                           std::string name = info.param.fixture;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace sluice::test

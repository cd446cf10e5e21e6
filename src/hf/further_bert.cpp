// Encoders: BERT, XLM-RoBERTa (BGE-M3, multilingual E5), Nomic BERT and ModernBERT, and rerankers
// based on the first two.
#include "hf/further_read.h"

namespace sluice::hf {
namespace {

constexpr std::string_view kBertSkipped[] = {"embeddings.position_ids", "cls.", "lm_head.",
                                             "bert.embeddings.position_ids",
                                             "roberta.embeddings.position_ids"};
constexpr std::string_view kBertPrefixes[] = {"bert.", "roberta."};
// A reranker's head is a dense layer, tanh and the scores. BERT's dense layer is its pooler.
#define SLUICE_EMBEDDINGS                                                          \
  {"embeddings.word_embeddings", "token_embd"},                                    \
      {"embeddings.position_embeddings", "position_embd", TensorTransform::kTail}, \
      {"embeddings.token_type_embeddings", "token_types"}, {                       \
    "embeddings.LayerNorm", "token_embd_norm"                                      \
  }
constexpr Name kBertWhole[] = {
    SLUICE_EMBEDDINGS, {"pooler.dense", "cls"}, {"classifier", "cls.output"}};
constexpr Name kRobertaWhole[] = {SLUICE_EMBEDDINGS,
                                  {"pooler.dense", "-", TensorTransform::kSkip},
                                  {"classifier.dense", "cls"},
                                  {"classifier.out_proj", "cls.output"}};
#undef SLUICE_EMBEDDINGS
constexpr Name kBertLayer[] = {
    {"attention.self.query", "attn_q"},
    {"attention.self.key", "attn_k"},
    {"attention.self.value", "attn_v"},
    {"attention.output.dense", "attn_output"},
    {"attention.output.LayerNorm", "attn_output_norm"},
    {"intermediate.dense", "ffn_up"},
    {"output.dense", "ffn_down"},
    {"output.LayerNorm", "layer_output_norm"},
};
constexpr Name kNomicWhole[] = {{"embeddings.word_embeddings", "token_embd"},
                                {"embeddings.token_type_embeddings", "token_types"},
                                {"emb_ln", "token_embd_norm"}};
constexpr Name kNomicLayer[] = {{"attn.Wqkv", "attn_qkv"},     {"attn.out_proj", "attn_output"},
                                {"mlp.fc11", "ffn_up"},        {"mlp.fc12", "ffn_gate"},
                                {"mlp.fc2", "ffn_down"},       {"norm1", "attn_output_norm"},
                                {"norm2", "layer_output_norm"}};
constexpr std::string_view kModernSkipped[] = {"head.", "decoder."};
constexpr std::string_view kModernPrefixes[] = {"model."};
constexpr Name kModernWhole[] = {{"embeddings.tok_embeddings", "token_embd"},
                                 {"embeddings.norm", "token_embd_norm"},
                                 {"final_norm", "output_norm"}};
constexpr Name kModernLayer[] = {{"attn_norm", "attn_norm"}, {"attn.Wqkv", "attn_qkv"},
                                 {"attn.Wo", "attn_output"}, {"mlp_norm", "ffn_norm"},
                                 {"mlp.Wi", "ffn_up"},       {"mlp.Wo", "ffn_down"}};

struct Keys {  // of config.json
  const char *layers, *heads, *width, *inner, *positions, *epsilon;
};
constexpr Keys kUsual = {"num_hidden_layers", "num_attention_heads",     "hidden_size",
                         "intermediate_size", "max_position_embeddings", "layer_norm_eps"};
constexpr Keys kNomic = {"n_layer", "n_head",      "n_embd",
                         "n_inner", "n_positions", "layer_norm_epsilon"};
constexpr Keys kModern = {"num_hidden_layers", "num_attention_heads",     "hidden_size",
                          "intermediate_size", "max_position_embeddings", "norm_eps"};

// Returns the number of layers.
int64_t read_encoder(ConfigFields& f, const Keys& keys, int64_t skipped, gguf::MetadataWriter* out,
                     std::string_view arch) {
  const int64_t layers = f.size(keys.layers), positions = f.size(keys.positions);
  if (layers > kMaxConfigLayers || positions <= skipped) {
    f.fail(error(Code::kBadHeader, "config.json: %s is impossible",
                 layers > kMaxConfigLayers ? keys.layers : keys.positions));
    return 1;
  }
  f.put("block_count", layers);
  f.put("context_length", positions - skipped);
  f.put("embedding_length", f.size(keys.width));
  f.put("feed_forward_length", f.size(keys.inner));
  f.put("attention.head_count", f.size(keys.heads));
  f.put("attention.layer_norm_epsilon", f.real(f.config(), keys.epsilon, 1e-12));
  out->boolean(std::string(arch) + ".attention.causal", false);
  return layers;
}

// For other readers of converted files; the engine itself uses the matrix's shape.
void write_token_types(ConfigFields& f, gguf::MetadataWriter* out) {
  out->number("tokenizer.ggml.token_type_count",
              static_cast<uint32_t>(f.size("type_vocab_size", 2)));
}

bool gives_scores(const Json& config) {
  const Json* names = json_find(config, "architectures");
  if (names == nullptr || !names->is_array() || names->empty()) return false;
  const auto* name = (*names)[0].get_ptr<const Json::string_t*>();
  return name != nullptr && name->ends_with("ForSequenceClassification");
}

// GELU is its tanh approximation, as in the GGUF files of these models.
void read_bert(ConfigFields& f, gguf::MetadataWriter* out, Facts* facts) {
  read_encoder(f, kUsual, facts->skipped_rows, out, "bert");
  write_token_types(f, out);
  expect_activation(f, "hidden_act", "gelu", "gelu_new");
  const std::string_view positions =
      json_string(f.config(), "position_embedding_type").value_or("absolute");
  if (positions != "absolute") f.unsupported("position_embedding_type");
  if (json_bool(f.config(), "is_decoder").value_or(false)) f.unsupported("is_decoder");
  facts->scores = gives_scores(f.config());
  if (facts->scores) f.put("pooling_type", int64_t{4});
}

// Positions start after the padding token's id.
void read_roberta(ConfigFields& f, gguf::MetadataWriter* out, Facts* facts) {
  const int64_t pad = json_int(f.config(), "pad_token_id").value_or(1);
  if (pad < 0 || pad > 1 << 20) f.unsupported("pad_token_id");
  facts->skipped_rows = pad + 1;
  read_bert(f, out, facts);
}

void read_nomic(ConfigFields& f, gguf::MetadataWriter* out, Facts*) {
  const Json& c = f.config();
  read_encoder(f, kNomic, 0, out, "nomic-bert");
  write_token_types(f, out);
  const int64_t head = std::max<int64_t>(1, f.size("n_embd") / f.size("n_head"));
  f.put("rope.dimension_count", head);
  f.put("rope.freq_base", f.real(c, "rotary_emb_base", 10000));
  expect_activation(f, "activation_function", "swiglu");
  if (f.real(c, "rotary_emb_fraction", 1) != 1) f.unsupported("rotary_emb_fraction");
  if (f.real(c, "moe_every_n_layers", 0) != 0) f.unsupported("moe_every_n_layers");
  for (const char* key : {"rotary_emb_scale_base", "rotary_scaling_factor"}) {
    if (json_find(c, key) != nullptr && *json_find(c, key) != false) f.unsupported(key);
  }
  for (const char* key : {"rotary_emb_interleaved", "prenorm", "causal", "use_rms_norm"}) {
    if (json_bool(c, key).value_or(false)) f.unsupported(key);
  }
}

void read_modern(ConfigFields& f, gguf::MetadataWriter* out, Facts*) {
  const Json& c = f.config();
  const int64_t layers = read_encoder(f, kModern, 0, out, "modern-bert");
  const int64_t head = std::max<int64_t>(1, f.size("hidden_size") / f.size("num_attention_heads"));
  f.put("rope.dimension_count", head);
  const auto base = [&](const char* kind, const char* key, double fallback) {
    const Json& rope = rope_parameters(c, kind);
    expect_rope(f, rope, "default");
    f.put(std::string_view(kind) == "full_attention" ? "rope.freq_base" : "rope.freq_base_swa",
          f.real(rope, "rope_theta", f.real(c, key, fallback)));
  };
  base("full_attention", "global_rope_theta", 160000);
  base("sliding_attention", "local_rope_theta", 10000);
  f.put("attention.sliding_window", f.size("local_attention", 128));
  std::vector<int32_t> local = windows(f, layers, 1);
  if (layer_types(f, layers).empty()) {
    const auto period = static_cast<size_t>(f.size("global_attn_every_n_layers", 3));
    for (size_t i = 0; i < local.size(); i++) local[i] = i % period == 0 ? 0 : 1;
  }
  out->integers("modern-bert.attention.sliding_window_pattern", local);
  expect_activation(f, "hidden_activation", "gelu");
  if (gives_scores(c)) f.unsupported("ForSequenceClassification");
}

}  // namespace

const Further kBert = {.model_type = "bert",
                       .arch = [](const Json&) { return std::string_view("bert"); },
                       .skipped = kBertSkipped,
                       .prefixes = kBertPrefixes,
                       .layers = "encoder.layer.",
                       .whole = kBertWhole,
                       .of_layer = kBertLayer,
                       .read = read_bert};
const Further kXlmRoberta = {.model_type = "xlm-roberta",
                             .arch = [](const Json&) { return std::string_view("bert"); },
                             .skipped = kBertSkipped,
                             .prefixes = kBertPrefixes,
                             .layers = "encoder.layer.",
                             .whole = kRobertaWhole,
                             .of_layer = kBertLayer,
                             .read = read_roberta};
const Further kNomicBert = {.model_type = "nomic_bert",
                            .arch = [](const Json&) { return std::string_view("nomic-bert"); },
                            .skipped = {},
                            .prefixes = kBertPrefixes,
                            .layers = "encoder.layers.",
                            .whole = kNomicWhole,
                            .of_layer = kNomicLayer,
                            .read = read_nomic};
const Further kModernBert = {.model_type = "modernbert",
                             .arch = [](const Json&) { return std::string_view("modern-bert"); },
                             .skipped = kModernSkipped,
                             .prefixes = kModernPrefixes,
                             .layers = "layers.",
                             .whole = kModernWhole,
                             .of_layer = kModernLayer,
                             .read = read_modern};

}  // namespace sluice::hf

// Encoders: BERT, XLM-RoBERTa (BGE-M3, multilingual E5), Nomic BERT and ModernBERT, and rerankers
// based on the first two.
#include "hf/architecture.h"

namespace sluice::hf {
namespace {

constexpr std::string_view kBertSkipped[] = {"embeddings.position_ids", "cls.", "lm_head.",
                                             "bert.embeddings.position_ids",
                                             "roberta.embeddings.position_ids"};
constexpr std::string_view kBertPrefixes[] = {"bert.", "roberta."};
// A reranker's head is a dense layer, tanh and the scores. BERT's dense layer is its pooler.
constexpr Name kEmbeddings[] = {
    {"embeddings.word_embeddings", "token_embd"},
    {"embeddings.position_embeddings", "position_embd", TensorTransform::kTail},
    {"embeddings.token_type_embeddings", "token_types"},
    {"embeddings.LayerNorm", "token_embd_norm"}};
constexpr Name kBertHead[] = {{"pooler.dense", "cls"}, {"classifier", "cls.output"}};
constexpr Name kRobertaHead[] = {{"pooler.dense", "-", TensorTransform::kSkip},
                                 {"classifier.dense", "cls"},
                                 {"classifier.out_proj", "cls.output"}};
constexpr auto kBertWhole = joined(kEmbeddings, kBertHead);
constexpr auto kRobertaWhole = joined(kEmbeddings, kRobertaHead);
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
constexpr Name kModernWhole[] = {{"embeddings.tok_embeddings", "token_embd"},
                                 {"embeddings.norm", "token_embd_norm"},
                                 {"final_norm", "output_norm"}};
constexpr Name kModernLayer[] = {{"attn_norm", "attn_norm"}, {"attn.Wqkv", "attn_qkv"},
                                 {"attn.Wo", "attn_output"}, {"mlp_norm", "ffn_norm"},
                                 {"mlp.Wi", "ffn_up"},       {"mlp.Wo", "ffn_down"}};

// Positions of the model; the position embedding also has rows for padding.
int64_t positions(ConfigReader& r) {
  const int64_t all = r.size("max_position_embeddings");
  if (all <= r.facts.skipped_rows) r.impossible("max_position_embeddings");
  return all - r.facts.skipped_rows;
}

// For other readers of converted files; the engine itself uses the matrix's shape.
void write_token_types(ConfigReader& r) {
  r.out().number("tokenizer.ggml.token_type_count",
                 static_cast<uint32_t>(r.size("type_vocab_size", 2)));
}

bool gives_scores(const Json& config) {
  const Json* names = json_find(config, "architectures");
  if (names == nullptr || !names->is_array() || names->empty()) return false;
  const auto* name = (*names)[0].get_ptr<const Json::string_t*>();
  return name != nullptr && name->ends_with("ForSequenceClassification");
}

// GELU is its tanh approximation, as in the GGUF files of these models.
void read_bert(ConfigReader& r) {
  r.put_flag("attention.causal", false);
  write_token_types(r);
  expect_activation(r, "hidden_act", "gelu", "gelu_new");
  const std::string_view positions =
      json_string(r.config(), "position_embedding_type").value_or("absolute");
  if (positions != "absolute") r.unsupported("position_embedding_type");
  if (r.flag("is_decoder", false)) r.unsupported("is_decoder");
  r.facts.scores = gives_scores(r.config());
  if (r.facts.scores) r.put("pooling_type", int64_t{4});
}

// Positions start after the padding token's id.
void read_padding(ConfigReader& r) {
  const int64_t pad = json_int(r.config(), "pad_token_id").value_or(1);
  if (pad < 0 || pad > 1 << 20) r.unsupported("pad_token_id");
  r.facts.skipped_rows = pad + 1;
}

void read_nomic(ConfigReader& r) {
  const Json& c = r.config();
  r.put_flag("attention.causal", false);
  write_token_types(r);
  const int64_t head = std::max<int64_t>(1, r.size("n_embd") / r.size("n_head"));
  r.put("rope.dimension_count", head);
  r.put("rope.freq_base", r.real(c, "rotary_emb_base", 10000));
  expect_activation(r, "activation_function", "swiglu");
  if (r.real(c, "rotary_emb_fraction", 1) != 1) r.unsupported("rotary_emb_fraction");
  if (r.real(c, "moe_every_n_layers", 0) != 0) r.unsupported("moe_every_n_layers");
  for (const char* key : {"rotary_emb_scale_base", "rotary_scaling_factor"}) {
    if (json_find(c, key) != nullptr && *json_find(c, key) != false) r.unsupported(key);
  }
  for (const char* key : {"rotary_emb_interleaved", "prenorm", "causal", "use_rms_norm"}) {
    if (r.flag(key, false)) r.unsupported(key);
  }
}

void read_modern(ConfigReader& r) {
  const Json& c = r.config();
  r.put_flag("attention.causal", false);
  const int64_t head = std::max<int64_t>(1, r.size("hidden_size") / r.size("num_attention_heads"));
  r.put("rope.dimension_count", head);
  const auto base = [&](const char* kind, const char* key, double fallback) {
    const Json& rope = rope_parameters(c, kind);
    expect_rope(r, rope, "default");
    r.put(std::string_view(kind) == "full_attention" ? "rope.freq_base" : "rope.freq_base_swa",
          r.real(rope, "rope_theta", r.real(c, key, fallback)));
  };
  base("full_attention", "global_rope_theta", 160000);
  base("sliding_attention", "local_rope_theta", 10000);
  r.put("attention.sliding_window", r.size("local_attention", 128));
  std::vector<int32_t> local = windows(r, 1);
  if (layer_types(r).empty()) {
    const auto period = static_cast<size_t>(r.size("global_attn_every_n_layers", 3));
    for (size_t i = 0; i < local.size(); i++) local[i] = i % period == 0 ? 0 : 1;
  }
  r.put_list("attention.sliding_window_pattern", local);
  expect_activation(r, "hidden_activation", "gelu");
  if (gives_scores(c)) r.unsupported("ForSequenceClassification");
}

constexpr Field kBert[] = {
    size_of("block_count", "num_hidden_layers"),
    computed("context_length", positions),
    size_of("embedding_length", "hidden_size"),
    size_of("feed_forward_length", "intermediate_size"),
    size_of("attention.head_count", "num_attention_heads"),
    real_of("attention.layer_norm_epsilon", "layer_norm_eps", 1e-12),
    read_by(read_bert),
};
constexpr Field kXlmRoberta[] = {read_by(read_padding), all_of(kBert)};
constexpr Field kNomicBert[] = {
    size_of("block_count", "n_layer"),
    size_of("context_length", "n_positions"),
    size_of("embedding_length", "n_embd"),
    size_of("feed_forward_length", "n_inner"),
    size_of("attention.head_count", "n_head"),
    real_of("attention.layer_norm_epsilon", "layer_norm_epsilon", 1e-12),
    read_by(read_nomic),
};
constexpr Field kModernBert[] = {
    size_of("block_count", "num_hidden_layers"),
    size_of("context_length", "max_position_embeddings"),
    size_of("embedding_length", "hidden_size"),
    size_of("feed_forward_length", "intermediate_size"),
    size_of("attention.head_count", "num_attention_heads"),
    real_of("attention.layer_norm_epsilon", "norm_eps", 1e-12),
    read_by(read_modern),
};

}  // namespace

const TensorMap kBertTensors = {.skipped = kBertSkipped,
                                .prefixes = kBertPrefixes,
                                .layers = "encoder.layer.",
                                .whole = kBertWhole,
                                .of_layer = kBertLayer};
const TensorMap kXlmRobertaTensors = {.skipped = kBertSkipped,
                                      .prefixes = kBertPrefixes,
                                      .layers = "encoder.layer.",
                                      .whole = kRobertaWhole,
                                      .of_layer = kBertLayer};
const TensorMap kNomicBertTensors = {.skipped = {},
                                     .prefixes = kBertPrefixes,
                                     .layers = "encoder.layers.",
                                     .whole = kNomicWhole,
                                     .of_layer = kNomicLayer};
const TensorMap kModernBertTensors = {.skipped = kModernSkipped,
                                      .prefixes = kModelPrefix,
                                      .whole = kModernWhole,
                                      .of_layer = kModernLayer};
const std::span<const Field> kBertFields = kBert, kXlmRobertaFields = kXlmRoberta,
                             kNomicBertFields = kNomicBert, kModernBertFields = kModernBert;

}  // namespace sluice::hf

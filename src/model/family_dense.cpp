// Dense transformers that differ in where norms are, what is rotated, how positions are encoded and
// which FFN they use: one builder, and a table of the differences. Differences that show in the
// tensors (biases, fused matrices, RoPE factors, scales, inner norms) are not in the table.
// To add a family, see README.md in this directory.
#include <iterator>

#include "gguf/printable.h"
#include "model/builder.h"

namespace sluice::model {
namespace {

// Norms of a block's input. kBare: a norm without weights.
enum class Before : uint8_t { kNormed, kPlain, kBare };
// RMS norms of queries and keys. kByHead: a LayerNorm with separate weights per head. kWideLayer:
// one LayerNorm over all heads. Both are used only if the file has their tensors.
enum class Heads : uint8_t { kPlain, kNormed, kWide, kAfterRope, kByHead, kWideLayer };
// Whether attention and FFN both read the block's input. kByNorm: if there is no ffn_norm.
enum class Parallel : uint8_t { kNo, kYes, kByKey, kByNorm };
enum class Positions : uint8_t { kNone, kRope, kLearned, kAlibi };

struct Row {
  const char* arch;
  NormKind norm = NormKind::kRms;
  Before before = Before::kNormed;
  bool after = false;  // norms of the outputs of attention and FFN
  Heads heads = Heads::kPlain;
  Parallel parallel = Parallel::kNo;
  Positions positions = Positions::kRope;
  Activation act = Activation::kSiluMul;
  int64_t period = 0;           // every period-th layer has no window; 0: no such layers
  bool rope_is_local = false;   // those layers have no RoPE
  bool ignores_window = false;  // ignore the metadata's window
  bool scales_logits = false;   // logit_scale multiplies logits instead of dividing them
  bool embedding_norm = false;
};

constexpr NormKind kLayer = NormKind::kLayer;
constexpr Activation kGelu = Activation::kGeluTanh;

// Numbers in comments are papers: https://arxiv.org/abs/NUMBER.
constexpr Row kRows[] = {
    {.arch = "command-r",
     .norm = kLayer,
     .heads = Heads::kByHead,
     .parallel = Parallel::kYes,
     .scales_logits = true},
    {.arch = "cohere2",
     .norm = kLayer,
     .parallel = Parallel::kYes,
     .period = 4,
     .rope_is_local = true,
     .scales_logits = true},
    {.arch = "olmo", .norm = kLayer, .before = Before::kBare},  // 2402.00838
    {.arch = "olmo2",
     .before = Before::kPlain,
     .after = true,
     .heads = Heads::kWide},  // 2501.00656
    {.arch = "minicpm"},      // 2404.06395
    {.arch = "exaone4",       // 2507.11407
     .before = Before::kPlain,
     .after = true,
     .heads = Heads::kNormed,
     .period = 4,
     .rope_is_local = true},
    {.arch = "hunyuan-dense", .heads = Heads::kAfterRope},
    {.arch = "apertus", .heads = Heads::kNormed, .act = Activation::kXielu},  // 2509.14233
    {.arch = "arcee", .act = Activation::kReluSquared},
    {.arch = "nemotron", .norm = kLayer, .act = Activation::kReluSquared},  // 2402.16819
    {.arch = "phi2", .norm = kLayer, .parallel = Parallel::kYes, .act = kGelu},
    // 2404.14219. Files have a window although the models were trained without one; the reference
    // implementation ignores it too.
    {.arch = "phi3", .ignores_window = true},
    {.arch = "glm4", .after = true},  // 2406.12793
    {.arch = "stablelm",              // 2402.17834; the 12B model is parallel
     .norm = kLayer,
     .heads = Heads::kByHead,
     .parallel = Parallel::kByNorm},
    {.arch = "falcon", .norm = kLayer, .parallel = Parallel::kYes, .act = kGelu},     // 2311.16867
    {.arch = "gptneox", .norm = kLayer, .parallel = Parallel::kByKey, .act = kGelu},  // 2204.06745
    {.arch = "gpt2", .norm = kLayer, .positions = Positions::kLearned, .act = kGelu},
    {.arch = "starcoder", .norm = kLayer, .positions = Positions::kLearned, .act = kGelu},
    {.arch = "starcoder2", .norm = kLayer, .act = kGelu},  // 2402.19173
    {.arch = "codeshell", .norm = kLayer, .act = kGelu},   // 2403.15747
    {.arch = "mpt",
     .norm = kLayer,
     .heads = Heads::kWideLayer,
     .positions = Positions::kAlibi,
     .act = kGelu},
    {.arch = "bloom",  // 2211.05100
     .norm = kLayer,
     .positions = Positions::kAlibi,
     .act = kGelu,
     .embedding_norm = true},
    {.arch = "jais", .norm = kLayer, .positions = Positions::kAlibi},  // 2308.16149
    {.arch = "refact", .positions = Positions::kAlibi},
    {.arch = "baichuan"},  // 2309.10305
    {.arch = "orion", .norm = kLayer},
    {.arch = "xverse"},
    {.arch = "openelm", .heads = Heads::kNormed},  // 2404.14619
    {.arch = "chatglm"},
    {.arch = "plamo3", .after = true, .heads = Heads::kNormed, .period = 8},
    {.arch = "bitnet"},  // 2504.12285; the metadata names the activation of the 2B model
};

const Row& row_of(const std::string& arch) {
  size_t i = 0;
  while (i + 1 < std::size(kRows) && arch != kRows[i].arch) ++i;
  return kRows[i];
}

// Baichuan's two sizes encode positions differently and are recognized by their number of layers.
// With any other number the reference implementation encodes none.
Positions positions_of(const Row& row, const HParams& hp) {
  constexpr int64_t kLayersOf7B = 32, kLayersOf13B = 40;
  if (hp.arch != "baichuan" || hp.n_layer == kLayersOf7B) return row.positions;
  return hp.n_layer == kLayersOf13B ? Positions::kAlibi : Positions::kNone;
}

Activation activation_of(Builder& b, const Row& row) {
  const std::string& named = b.hp().ffn.hidden_activation;
  if (named == "relu2") return Activation::kReluSquaredMul;
  if (!named.empty() && named != "silu") {
    b.fail(error(Code::kUnsupportedArchitecture, "%s.hidden_activation \"%.64s\" is not supported",
                 row.arch, gguf::printable(named, 64).c_str()));
  }
  return row.act;
}

bool is_local(const Row& row, const HParams& hp, int64_t layer) {
  if (hp.window.size == 0 || row.ignores_window) return false;
  if (!hp.window.local_of.empty()) return hp.window.local_of[static_cast<size_t>(layer)] != 0;
  const int64_t period = hp.window.pattern > 0 ? hp.window.pattern : row.period;
  return period == 0 || layer % period < period - 1;
}

// What all layers of a model share.
struct Plan {
  const Row& row;
  Activation act;
  AttentionSpec attention;  // except for what differs by layer
  int32_t rope, local_rope;
  float score_scale;  // 0: the metadata's
};

Plan make_plan(Builder& b) {
  const HParams& hp = b.hp();
  const Row& row = row_of(hp.arch);
  Plan plan{row, activation_of(b, row), {}, -1, -1, 0};
  const Positions positions = positions_of(row, hp);
  if (positions == Positions::kRope) {
    plan.rope = plan.local_rope = b.add_rope(hp.rope);
    if (hp.window.freq_base != hp.rope.freq_base && hp.arch == "plamo3") {
      RopeHParams local = hp.rope;
      local.freq_base = hp.window.freq_base;
      plan.local_rope = b.add_rope(local);
    }
  }
  constexpr float kUsualBias = 8;
  if (positions == Positions::kAlibi)
    plan.attention.alibi = hp.attention.alibi >= 0 ? hp.attention.alibi : kUsualBias;
  if (hp.attention.alibi > 0 && positions != Positions::kAlibi) {
    b.fail(error(Code::kUnsupportedArchitecture, "%s.attention.max_alibi_bias is not supported",
                 row.arch));
  }
  plan.attention.qk_norm = row.heads == Heads::kNormed || row.heads == Heads::kAfterRope;
  plan.attention.norm_after_rope = row.heads == Heads::kAfterRope;
  if (hp.arch == "jais") plan.score_scale = 1 / static_cast<float>(hp.attention.head_dim_k);
  return plan;
}

void attention(Builder& b, const Plan& plan, int64_t layer) {
  const HParams& hp = b.hp();
  const bool local = is_local(plan.row, hp, layer);
  AttentionSpec spec = plan.attention;
  spec.window = local ? static_cast<int32_t>(hp.window.size) : 0;
  spec.rope = local ? plan.local_rope : plan.rope;
  if (plan.row.rope_is_local && hp.window.size > 0 && !local) spec.rope = -1;
  const Heads heads = plan.row.heads;
  const bool normed = b.has(layer, "attn_q_norm");
  spec.qk_layer_norm = normed && (heads == Heads::kByHead || heads == Heads::kWideLayer);
  spec.qk_norm_wide = heads == Heads::kWide || (normed && heads == Heads::kWideLayer);
  b.attention(layer, spec);
  if (plan.score_scale != 0) b.set_score_scale(plan.score_scale);
}

void ffn(Builder& b, const Plan& plan, int64_t layer, Buf in, Buf out, bool add) {
  const float scale = add ? b.hp().scales.residual : 1;
  if (is_gated(plan.act)) {
    b.gated_ffn(layer, in, out, plan.act, add, scale);
  } else {
    b.plain_ffn(layer, in, out, plan.act, add, scale);
  }
}

// x += attention(norm(x)) + ffn(norm(x)), with one norm for both or two.
void parallel_block(Builder& b, const Plan& plan, int64_t layer) {
  const bool falcon_two = b.has(layer, "attn_norm_2");  // then attn_norm is the FFN's
  const char* second = falcon_two                              ? "attn_norm"
                       : plan.row.parallel == Parallel::kByKey ? "ffn_norm"
                                                               : nullptr;
  b.norm(layer, falcon_two ? "attn_norm_2" : "attn_norm", Buf::kX, Buf::kH, plan.row.norm,
         "attn_norm");
  attention(b, plan, layer);
  if (second != nullptr) b.norm(layer, second, Buf::kX, Buf::kH, plan.row.norm, "ffn_norm");
  b.attention_output(layer, Buf::kX, true, b.hp().scales.residual);
  ffn(b, plan, layer, Buf::kH, Buf::kX, true);
}

// Norms kX if the family has norms before its blocks; returns the buffer with the result.
Buf block_input(Builder& b, const Row& row, int64_t layer, const char* name) {
  if (row.before == Before::kPlain) return Buf::kX;
  b.norm(layer, row.before == Before::kBare ? nullptr : name, Buf::kX, Buf::kH, row.norm, name);
  return Buf::kH;
}

// Adds kT, normed, to the residual stream.
void add_normed(Builder& b, const Row& row, int64_t layer, const char* name, const char* mark) {
  b.norm(layer, name, Buf::kT, Buf::kT, row.norm, mark);
  b.add(layer, Buf::kT, Buf::kX, b.hp().scales.residual);
}

void sequential_block(Builder& b, const Plan& plan, int64_t layer) {
  const HParams& hp = b.hp();
  const Row& row = plan.row;
  const Buf out = row.after ? Buf::kT : Buf::kX;
  if (block_input(b, row, layer, "attn_norm") == Buf::kX) {
    b.scale(layer, Buf::kX, Buf::kH, hp.n_embd, 1);  // attention reads kH
  }
  attention(b, plan, layer);
  b.attention_output(layer, out, !row.after, row.after ? 1 : hp.scales.residual);
  if (row.after) add_normed(b, row, layer, "post_attention_norm", "attn_post_norm");
  b.mark("ffn_inp", "ADD", layer, Buf::kX, 0, hp.n_embd);
  ffn(b, plan, layer, block_input(b, row, layer, "ffn_norm"), out, !row.after);
  if (row.after) add_normed(b, row, layer, "post_ffw_norm", "ffn_post_norm");
}

bool is_parallel(const Builder& b, const Row& row, int64_t layer) {
  switch (row.parallel) {
    case Parallel::kNo:
      return false;
    case Parallel::kYes:
      return true;
    case Parallel::kByKey:
      return b.hp().parallel_residual;
    case Parallel::kByNorm:
      return !b.has(layer, "ffn_norm");
  }
  return false;
}

}  // namespace

void build_dense(Builder& b) {
  const HParams& hp = b.hp();
  const Plan plan = make_plan(b);
  const Row& row = plan.row;
  int32_t learned = -1;
  if (row.positions == Positions::kLearned || b.has(-1, "position_embd")) {
    learned = b.vec(-1, "position_embd", hp.n_ctx_train * hp.n_embd);
  }
  b.embed(hp.scales.embedding, learned);
  if (row.embedding_norm) b.norm(-1, "token_embd_norm", Buf::kX, Buf::kX, row.norm);
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    if (is_parallel(b, row, layer)) {
      parallel_block(b, plan, layer);
    } else {
      sequential_block(b, plan, layer);
    }
    b.mark("l_out", "ADD", layer, Buf::kX, 0, hp.n_embd);
  }
  if (row.scales_logits) b.set_logit_scale(1 / hp.scales.logit);
  b.head(row.norm, row.before == Before::kBare ? nullptr : "output_norm");
}

}  // namespace sluice::model

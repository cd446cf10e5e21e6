// Llama's block with experts: OLMoE (https://arxiv.org/abs/2409.02060), Phi-3.5-MoE (2404.14219),
// DeepSeek's first mixture (2401.06066), GLM-4.5 (2508.06471), Hunyuan-Large (2411.02265),
// dots.llm1 (2506.05767), Ling 2.0 (2510.22115), gpt-oss (2508.10925), MiniMax-M2, DBRX, Granite
// with windows; and Maincoder, which has none. The differences are in a table; layers without a
// router have a dense FFN.
#include <iterator>

#include "model/builder.h"

namespace sluice::model {
namespace {

// RMS norms of queries and keys.
enum class MoeHeads : uint8_t {
  kPlain,
  kNormed,     // each head
  kMayBe,      // each head, if the tensors are present
  kWide,       // all heads together
  kAfterRope,  // each head, after RoPE
};

struct MoeRow {
  const char* arch;
  MoeHeads heads = MoeHeads::kPlain;
  Gating gating = Gating::kSoftmax;
  bool normalize = true;
  NormKind norm = NormKind::kRms;
  const char* ffn_norm = "ffn_norm";
  Activation act = Activation::kSiluMul;
  bool sinks = false;
  int64_t window_period = 0;  // every so many layers one has no window; 0: as the metadata says
};

constexpr MoeRow kMoeRows[] = {
    {.arch = "olmoe", .heads = MoeHeads::kWide, .normalize = false},
    {.arch = "phimoe"},  // biases of its norms are optional tensors
    {.arch = "deepseek", .normalize = false},
    {.arch = "glm4moe",
     .heads = MoeHeads::kMayBe,
     .gating = Gating::kSigmoid,
     .normalize = false,
     .ffn_norm = "post_attention_norm"},
    {.arch = "hunyuan-moe", .heads = MoeHeads::kAfterRope},
    {.arch = "dots1", .heads = MoeHeads::kNormed, .gating = Gating::kSigmoid, .normalize = false},
    {.arch = "bailingmoe2",
     .heads = MoeHeads::kNormed,
     .gating = Gating::kSigmoid,
     .normalize = false},
    {.arch = "minimax-m2", .heads = MoeHeads::kWide, .gating = Gating::kSigmoid},
    {.arch = "maincoder", .heads = MoeHeads::kAfterRope},
    {.arch = "dbrx", .norm = NormKind::kLayer, .ffn_norm = "attn_output_norm"},
    {.arch = "granite_swa", .sinks = true},
    {.arch = "gpt-oss",
     .gating = Gating::kSoftmaxChosen,
     .normalize = false,
     .ffn_norm = "post_attention_norm",
     .act = Activation::kClampedSwiglu,
     .sinks = true,
     .window_period = 2},
};

const MoeRow& moe_row_of(const std::string& arch) {
  size_t i = 0;
  while (i + 1 < std::size(kMoeRows) && arch != kMoeRows[i].arch) ++i;
  return kMoeRows[i];
}

}  // namespace

void build_moe_layer(Builder& b, int64_t layer, int32_t rope) {
  const HParams& hp = b.hp();
  const MoeRow& row = moe_row_of(hp.arch);
  const int64_t period = hp.window.pattern > 0 ? hp.window.pattern : row.window_period;
  AttentionSpec attention;
  attention.rope = rope;
  attention.sinks = row.sinks;
  attention.qk_norm_wide = row.heads == MoeHeads::kWide;
  attention.norm_after_rope = row.heads == MoeHeads::kAfterRope;
  attention.qk_norm = row.heads == MoeHeads::kNormed || row.heads == MoeHeads::kAfterRope ||
                      (row.heads == MoeHeads::kMayBe && b.has(layer, "attn_q_norm"));
  const bool local = period > 0 && (layer + 1) % period != 0;
  attention.window = local ? static_cast<int32_t>(hp.window.size) : 0;
  b.norm(layer, "attn_norm", Buf::kX, Buf::kH, row.norm, "attn_norm");
  b.attention(layer, attention);
  b.attention_output(layer, Buf::kX, true, hp.scales.residual);
  b.mark("ffn_inp", "ADD", layer, Buf::kX, 0, hp.n_embd);
  b.norm(layer, row.ffn_norm, Buf::kX, Buf::kH, row.norm, "ffn_norm");
  if (b.has_experts(layer)) {
    MoeSpec moe = b.moe_spec(row.gating, row.normalize);
    moe.act = row.act;
    moe.scale = hp.scales.residual;
    b.moe_ffn(layer, Buf::kX, moe);
  } else {
    b.gated_ffn(layer, Buf::kH, Buf::kX, row.act, true, hp.scales.residual);
  }
  b.mark("l_out", "ADD", layer, Buf::kX, 0, hp.n_embd);
}

void build_moe(Builder& b) {
  const HParams& hp = b.hp();
  const int32_t rope = hp.rope.disabled ? -1 : b.add_rope(hp.rope);
  b.embed(hp.scales.embedding);
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) build_moe_layer(b, layer, rope);
  b.head(moe_row_of(hp.arch).norm);
}

// SmallThinker (https://arxiv.org/abs/2507.20984): the router reads the block's input, before
// attention. The first of every four layers has full attention without RoPE, the others a window.
void build_smallthinker(Builder& b) {
  const HParams& hp = b.hp();
  const int64_t period = hp.window.pattern > 0 ? hp.window.pattern : 4;
  const int32_t rope = b.add_rope(hp.rope);
  MoeSpec moe = b.moe_spec(Gating::kSigmoid);
  moe.act = Activation::kReluMul;
  moe.router_in = Buf::kX;
  moe.routed = true;

  b.embed(1);
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    const bool global = hp.window.size > 0 && layer % period == 0;
    AttentionSpec attention;
    attention.rope = global ? -1 : rope;
    attention.window = global ? 0 : static_cast<int32_t>(hp.window.size);
    b.route(layer, moe);
    b.norm(layer, "attn_norm", Buf::kX, Buf::kH, NormKind::kRms, "attn_norm");
    b.attention(layer, attention);
    b.attention_output(layer, Buf::kX, true);
    b.mark("ffn_inp", "ADD", layer, Buf::kX, 0, hp.n_embd);
    b.norm(layer, "ffn_norm", Buf::kX, Buf::kH, NormKind::kRms, "ffn_norm");
    b.moe_ffn(layer, Buf::kX, moe);
    b.mark("l_out", "ADD", layer, Buf::kX, 0, hp.n_embd);
  }
  b.head();
}

// GroveMoE (https://arxiv.org/abs/2508.07785): each group of experts shares a smaller one, which
// runs on the experts' output and is chosen by the same router.
void build_grovemoe(Builder& b) {
  const HParams& hp = b.hp();
  AttentionSpec attention;
  attention.rope = b.add_rope(hp.rope);
  attention.qk_norm = true;
  MoeSpec moe = b.moe_spec();
  moe.add = false;
  MoeSpec adjugate = b.moe_spec();
  adjugate.kind = "_chexps";
  adjugate.n_ff = hp.moe.n_ff_group;
  adjugate.shared_by = hp.moe.n_expert_of_group;
  adjugate.in = Buf::kT;
  adjugate.routed = true;
  adjugate.scale = hp.moe.group_scale;

  b.embed(1);
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    b.norm(layer, "attn_norm", Buf::kX, Buf::kH, NormKind::kRms, "attn_norm");
    b.attention(layer, attention);
    b.attention_output(layer, Buf::kX, true);
    b.mark("ffn_inp", "ADD", layer, Buf::kX, 0, hp.n_embd);
    b.norm(layer, "ffn_norm", Buf::kX, Buf::kH, NormKind::kRms, "ffn_norm");
    b.moe_ffn(layer, Buf::kT, moe);
    b.moe_ffn(layer, Buf::kX, adjugate);
    b.add(layer, Buf::kT, Buf::kX);
    b.mark("l_out", "ADD", layer, Buf::kX, 0, hp.n_embd);
  }
  b.head();
}

}  // namespace sluice::model

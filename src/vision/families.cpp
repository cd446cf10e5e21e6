// The encoders: a table of differences between families, and a function for each kind of projector.
// Graphs are those of llama.cpp (tools/mtmd), which published projector files are made for.
#include <algorithm>
#include <cmath>

#include "vision/builder.h"

namespace sluice::vision {
namespace {

constexpr float kEps = 1e-5f;  // of norms in projectors that have no key for theirs

// The patches' grid is what kX has rows for; `merge` tokens a side become one.
int32_t merge_of(const Builder& b) {
  return static_cast<int32_t>(b.projector.merge);
}
int64_t merged_width(const Builder& b) {
  return b.width() * merge_of(b) * merge_of(b);
}

// Two matrices with an activation between, from `in`.
void mlp(Builder& b, Buf in, int64_t cols, const char* first, Activation act, const char* second) {
  const int64_t hidden = b.matmul(first, in, cols, Buf::kH);
  b.activation(act, Buf::kH);
  b.emit(Buf::kT, b.matmul(second, Buf::kH, hidden, Buf::kT));
}

// A gated MLP of what is in kY.
void glu(Builder& b, int64_t cols, const std::string& gate, const std::string& up,
         const std::string& down) {
  const int64_t hidden = b.matmul(gate, Buf::kY, cols, Buf::kG);
  b.matmul(up, Buf::kY, cols, Buf::kH, hidden);
  b.gated(Activation::kSilu, Buf::kG, Buf::kH);
  b.emit(Buf::kT, b.matmul(down, Buf::kH, hidden, Buf::kT));
}

// Begin and end vectors around the tokens.
void enclose(Builder& b, const char* before, const char* after) {
  const int64_t n = b.program.n_out;
  const int32_t first = b.vec(before, n), last = b.vec(after, n);
  Op& emit = b.program.ops.back();
  emit.vec = first;
  emit.vec2 = last;
}

void drop_class_row(Builder& b, bool first) {
  if (!b.has("v.class_embd")) return;
  Op& rows = b.op(OpKind::kRows, Buf::kX, Buf::kX);
  rows.skip = first ? 1 : 0;
  rows.drop = first ? 0 : 1;
}

void all_blocks(Builder& b) {
  b.blocks(0, static_cast<int32_t>(b.projector.n_layers));
}

// The four rows of a square side by side.
void squares(Builder& b, Buf buffer) {
  b.op(OpKind::kReshape, buffer, buffer).n = 2;
}

void qwen(Builder& b) {
  all_blocks(b);
  b.post_norm();
  squares(b, Buf::kX);
  mlp(b, Buf::kX, 4 * b.width(), "mm.0", Activation::kGeluTanh, "mm.2");
}

void glm4v(Builder& b) {
  all_blocks(b);
  b.post_norm();
  b.merge(2, /*channels_first=*/true, Buf::kX, Buf::kY);
  const int64_t n = b.matmul("mm.patch_merger", Buf::kY, 4 * b.width(), Buf::kX);
  const int64_t m = b.matmul("mm.model.fc", Buf::kX, n, Buf::kY);
  b.norm("mm.post_norm", Buf::kY, Buf::kY, m, NormKind::kLayer, kEps);
  b.activation(Activation::kGeluErf, Buf::kY);
  glu(b, m, "mm.gate", "mm.up", "mm.down");
}

// kT = kX times a matrix that is stored transposed.
void transposed(Builder& b, const std::string& name) {
  const gguf::Tensor* tensor = b.header.find_tensor(name);
  const int64_t rows = tensor == nullptr ? 1 : static_cast<int64_t>(tensor->cols());
  const int32_t mat = b.mat(name, b.width(), rows, /*plain=*/true);
  b.op(OpKind::kMatmulT, Buf::kX, Buf::kT).mat = mat;
  b.emit(Buf::kT, rows);
}

void gemma3(Builder& b) {
  all_blocks(b);
  b.post_norm();
  b.op(OpKind::kPool, Buf::kX, Buf::kY).n = merge_of(b);
  b.norm("mm.soft_emb_norm", Buf::kY, Buf::kX, b.width(), NormKind::kRms, b.eps());
  transposed(b, "mm.input_projection.weight");
}

void gemma4(Builder& b) {
  all_blocks(b);
  b.op(OpKind::kPool, Buf::kX, Buf::kY).n = merge_of(b);
  b.op(OpKind::kScale, Buf::kY, Buf::kY).value = std::sqrt(static_cast<float>(b.width()));
  if (b.has("v.std_bias") || b.has("v.std_scale")) {
    const int32_t bias = b.optional_vec("v.std_bias", b.width());
    const int32_t scale = b.optional_vec("v.std_scale", b.width());
    Op& affine = b.op(OpKind::kAffine, Buf::kY, Buf::kY);
    affine.vec = scale;
    affine.vec2 = bias;
  }
  b.norm("", Buf::kY, Buf::kY, b.width(), NormKind::kRms, b.eps());
  b.emit(Buf::kT, b.matmul("mm.input_projection", Buf::kY, b.width(), Buf::kT));
}

// No encoder: patches of a token's size straight to the text model's width.
void gemma4u(Builder& b) {
  b.program.patch = b.projector.token_side();
  const int64_t inputs = int64_t{3} * b.program.patch * b.program.patch;
  b.op(OpKind::kPatches, Buf::kNone, Buf::kH).n = static_cast<int32_t>(b.program.patch);
  b.norm("v.patch_norm.1", Buf::kH, Buf::kH, inputs, NormKind::kLayer, kEps);
  b.matmul("v.patch_embd", Buf::kH, inputs, Buf::kX, b.width());
  b.norm("v.patch_norm.2", Buf::kX, Buf::kX, b.width(), NormKind::kLayer, kEps);
  const int32_t table = b.mat("v.position_embd.weight", 0, b.width(), /*plain=*/true);
  Op& positions = b.op(OpKind::kAddTable, Buf::kX, Buf::kX);
  positions.mat = table;
  positions.positions = Positions::kColumnAndRow;
  b.norm("v.patch_norm.3", Buf::kX, Buf::kX, b.width(), NormKind::kLayer, kEps);
  b.norm("", Buf::kX, Buf::kX, b.width(), NormKind::kRms, b.eps());
  b.emit(Buf::kT, b.matmul("mm.input_projection", Buf::kX, b.width(), Buf::kT));
}

void idefics3(Builder& b) {
  all_blocks(b);
  b.post_norm();
  b.merge(merge_of(b), false, Buf::kX, Buf::kY);
  b.emit(Buf::kT, b.matmul("mm.model.fc", Buf::kY, merged_width(b), Buf::kT));
}

void lfm2(Builder& b) {
  all_blocks(b);
  b.post_norm();
  b.merge(merge_of(b), false, Buf::kX, Buf::kY);
  const int64_t n = merged_width(b);
  if (b.has("mm.input_norm.weight")) {
    b.norm("mm.input_norm", Buf::kY, Buf::kY, n, NormKind::kLayer, kEps);
  }
  mlp(b, Buf::kY, n, "mm.1", Activation::kGeluTanh, "mm.2");
}

// Norm of single patches before they are merged.
void kimi(Builder& b) {
  all_blocks(b);
  b.post_norm();
  b.norm("mm.input_norm", Buf::kX, Buf::kX, b.width(), NormKind::kLayer, kEps);
  b.merge(merge_of(b), false, Buf::kX, Buf::kY);
  mlp(b, Buf::kY, merged_width(b), "mm.1", Activation::kGeluTanh, "mm.2");
}

void pixtral(Builder& b) {
  all_blocks(b);
  int64_t n = b.width();
  Buf in = Buf::kX;
  if (b.has("mm.patch_merger.weight")) {
    b.norm("mm.input_norm", Buf::kX, Buf::kX, n, NormKind::kRms, b.eps());
    b.merge(merge_of(b), /*channels_first=*/true, Buf::kX, Buf::kY);
    n = b.matmul("mm.patch_merger", Buf::kY, merged_width(b), Buf::kX);
  }
  mlp(b, in, n, "mm.1", Activation::kGeluTanh, "mm.2");
  if (!b.projector.row_breaks) return;
  const int32_t row_break = b.vec("v.token_embd.img_break", b.program.n_out);
  b.program.ops.back().vec3 = row_break;
}

void internvl(Builder& b) {
  all_blocks(b);
  drop_class_row(b, /*first=*/false);
  b.merge(merge_of(b), false, Buf::kX, Buf::kY);
  const int64_t n = merged_width(b);
  b.norm("mm.model.mlp.0", Buf::kY, Buf::kY, n, NormKind::kLayer, kEps);
  mlp(b, Buf::kY, n, "mm.model.mlp.1", Activation::kGeluTanh, "mm.model.mlp.3");
}

// Hidden states that go into the projector side by side: 0 is the first block's input.
std::vector<int32_t> feature_layers(Builder& b) {
  constexpr const char* kKey = "clip.vision.feature_layer";
  const gguf::Value* value = b.header.find(kKey);
  std::vector<int32_t> out;
  if (value == nullptr) return out;
  for (uint64_t i = 0; i < value->count && i <= b.projector.n_layers; ++i) {
    const double layer = value->number_at(i);
    if (!(layer >= 0 && layer <= b.projector.n_layers) || layer != std::floor(layer)) {
      b.fail(error(Code::kBadHeader, "the projector's key %s must list blocks", kKey));
      return {};
    }
    out.push_back(static_cast<int32_t>(layer));
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// The last block of a CLIP file is not run.
void llava(Builder& b) {
  const std::vector<int32_t> features = feature_layers(b);
  int64_t n = b.width();
  if (features.empty()) {
    b.blocks(0, std::max(0, static_cast<int32_t>(b.projector.n_layers) - 1));
    drop_class_row(b, /*first=*/true);
    mlp(b, Buf::kX, n, "mm.0", Activation::kGeluTanh, "mm.2");
    return;
  }
  n *= static_cast<int64_t>(features.size());
  int32_t done = 0, col = 0;
  for (const int32_t layer : features) {
    b.blocks(done, layer);
    done = layer;
    Op& copy = b.op(OpKind::kCopy, Buf::kX, Buf::kF);
    copy.out_col = col;
    copy.total = static_cast<int32_t>(n);
    col += static_cast<int32_t>(b.width());
  }
  if (b.has("v.class_embd")) b.op(OpKind::kRows, Buf::kF, Buf::kF).skip = 1;
  mlp(b, Buf::kF, n, "mm.0", Activation::kGeluTanh, "mm.2");
}

void janus(Builder& b) {
  all_blocks(b);
  b.post_norm();
  mlp(b, Buf::kX, b.width(), "mm.0", Activation::kGeluTanh, "mm.1");
}

void cogvlm(Builder& b) {
  all_blocks(b);
  drop_class_row(b, /*first=*/false);
  const int64_t n = b.matmul("mm.model.fc", Buf::kX, b.width(), Buf::kY);
  b.norm("mm.post_fc_norm", Buf::kY, Buf::kY, n, NormKind::kLayer, kEps);
  b.activation(Activation::kGeluTanh, Buf::kY);
  glu(b, n, "mm.gate", "mm.up", "mm.down");
  enclose(b, "v.boi", "v.eoi");
}

void glm_edge(Builder& b) {
  all_blocks(b);
  b.merge(2, /*channels_first=*/true, Buf::kX, Buf::kY);
  const int64_t n = b.matmul("adapter.conv", Buf::kY, 4 * b.width(), Buf::kX);
  const int64_t m = b.matmul("adapter.linear.linear", Buf::kX, n, Buf::kY);
  b.norm("adapter.linear.norm1", Buf::kY, Buf::kY, m, NormKind::kLayer, kEps);
  b.activation(Activation::kGeluTanh, Buf::kY);
  glu(b, m, "adapter.linear.gate", "adapter.linear.dense_h_to_4h", "adapter.linear.dense_4h_to_h");
  enclose(b, "adapter.boi", "adapter.eoi");
}

// Learned queries attend to the patches; every input has as many tokens.
void resampler(Builder& b) {
  constexpr int64_t kHeadDim = 128;
  all_blocks(b);
  b.post_norm();
  const int64_t n = b.matmul("resampler.kv", Buf::kX, b.width(), Buf::kY);
  const auto wide = static_cast<int32_t>(n);
  if (n % kHeadDim != 0) {
    return b.fail(error(Code::kBadShape,
                        "the projector's tensor resampler.kv.weight must have a "
                        "multiple of 128 outputs"));
  }
  b.norm("resampler.ln_kv", Buf::kY, Buf::kY, n, NormKind::kLayer, b.eps());
  b.op(OpKind::kCopy, Buf::kY, Buf::kX);
  b.op(OpKind::kAddSinCos, Buf::kX, Buf::kX).n = wide;
  b.matmul("resampler.attn.k", Buf::kX, n, Buf::kH, n, 0, 2 * n);
  b.matmul("resampler.attn.v", Buf::kY, n, Buf::kH, n, n, 2 * n);
  const int64_t queries = b.projector.n_queries;
  const int32_t query = b.vec("resampler.query", queries * n);
  Op& constant = b.op(OpKind::kConstant, Buf::kNone, Buf::kT);
  constant.vec = query;
  constant.n = static_cast<int32_t>(queries);
  constant.groups = wide;
  b.norm("resampler.ln_q", Buf::kT, Buf::kT, n, NormKind::kLayer, b.eps());
  b.matmul("resampler.attn.q", Buf::kT, n, Buf::kG, n);
  Op& attend = b.op(OpKind::kAttention, Buf::kG, Buf::kY);
  attend.in2 = Buf::kH;
  attend.groups = static_cast<int32_t>(n / kHeadDim);
  attend.n = kHeadDim;
  attend.value = 1.0f / std::sqrt(static_cast<float>(kHeadDim));
  b.matmul("resampler.attn.out", Buf::kY, n, Buf::kT, n);
  b.norm("resampler.ln_post", Buf::kT, Buf::kX, n, NormKind::kLayer, b.eps());
  b.emit(Buf::kT, b.matmul("resampler.proj", Buf::kX, n, Buf::kT));
}

// Between two blocks: attention inside of squares, which are then merged to single rows.
void merge_squares(Builder& b) {
  b.attention("v.vit_merger.", "ln1", Reach::kSquare);
  const int64_t wide = 4 * b.width();
  squares(b, Buf::kX);
  b.op(OpKind::kCopy, Buf::kX, Buf::kT);
  b.norm("v.vit_merger.ds_ln", Buf::kX, Buf::kY, wide, NormKind::kLayer, b.eps());
  const int64_t hidden = b.matmul("v.vit_merger.ds_ffn_up", Buf::kY, wide, Buf::kH);
  b.activation(Activation::kGeluTanh, Buf::kH);
  b.matmul("v.vit_merger.ds_ffn_down", Buf::kH, hidden, Buf::kX, b.width());
  b.op(OpKind::kAddMean, Buf::kT, Buf::kX).n = 4;
}

void minicpm46(Builder& b) {
  const auto layers = static_cast<int32_t>(b.projector.n_layers);
  int32_t first = 0;
  if (merge_of(b) == 4) {
    const gguf::Value* value = b.header.find("clip.vision.wa_layer_indexes");
    const double layer = value == nullptr || value->count == 0 ? -1 : value->number_at(0);
    if (!(layer >= 0 && layer < layers)) {
      return b.fail(error(Code::kBadHeader,
                          "the projector's key clip.vision.wa_layer_indexes must name a block"));
    }
    first = static_cast<int32_t>(layer) + 1;
    b.blocks(0, first);
    merge_squares(b);
  }
  b.blocks(first, layers);
  b.post_norm();
  b.merge(2, false, Buf::kX, Buf::kY);
  const int64_t wide = 4 * b.width();
  b.norm("mm.input_norm", Buf::kY, Buf::kY, wide, NormKind::kLayer, b.eps());
  mlp(b, Buf::kY, wide, "mm.up", Activation::kGeluErf, "mm.down");
}

struct Family {
  Traits traits;
  void (*build)(Builder& b);  // what follows the patches
};

constexpr Traits qwen_traits(const char* type, NormKind norm, Order order, Positions positions) {
  return {.type = type,
          .norm = norm,
          .order = order,
          .positions = positions,
          .rope = Rope::kVision,
          .two_convs = true};
}
constexpr Traits pixtral_traits(const char* type) {
  return {.type = type, .norm = NormKind::kRms, .rope = Rope::kPixtral};
}

constexpr NormKind kRms = NormKind::kRms, kLayer = NormKind::kLayer;
constexpr Family kFamilies[] = {
    {qwen_traits("qwen2vl_merger", kLayer, Order::kSquares, Positions::kNone), qwen},
    {qwen_traits("qwen2.5vl_merger", kRms, Order::kWindows, Positions::kNone), qwen},
    {qwen_traits("qwen2.5o", kRms, Order::kWindows, Positions::kNone), qwen},
    {qwen_traits("qwen3vl_merger", kLayer, Order::kSquares, Positions::kAligned), qwen},
    {qwen_traits("glm4v", kRms, Order::kSquares, Positions::kBicubic), glm4v},
    {{.type = "gemma3", .positions = Positions::kDirect}, gemma3},
    {{.type = "gemma4v",
      .norm = kRms,
      .positions = Positions::kColumnAndRow,
      .rope = Rope::kGemma,
      .unit_scale = true,
      .value_norm = true,
      .shifted = true},
     gemma4},
    {{.type = "gemma4uv", .own_patches = true}, gemma4u},
    {{.type = "idefics3", .positions = Positions::kDirect}, idefics3},
    {{.type = "lfm2", .positions = Positions::kAntialiased}, lfm2},
    {pixtral_traits("pixtral"), pixtral},
    {pixtral_traits("lightonocr"), pixtral},
    {{.type = "internvl", .positions = Positions::kDirect}, internvl},
    {{.type = "mlp", .positions = Positions::kDirect}, llava},
    {{.type = "resampler", .positions = Positions::kBuckets}, resampler},
    {{.type = "minicpmv4_6", .order = Order::kSquares, .positions = Positions::kBuckets},
     minicpm46},
    {{.type = "kimivl", .positions = Positions::kAntialiased, .rope = Rope::kKimi}, kimi},
    {{.type = "paddleocr", .positions = Positions::kAntialiased, .rope = Rope::kVision}, kimi},
    {{.type = "janus_pro", .positions = Positions::kDirect}, janus},
    {{.type = "cogvlm", .positions = Positions::kDirect, .norm_after = true}, cogvlm},
    {{.type = "adapter", .positions = Positions::kDirect}, glm_edge},
};

}  // namespace

Result<Program> build(const gguf::Header& header, const media::Projector& projector) {
  const std::string_view type = projector.family->type;
  for (const Family& family : kFamilies) {
    if (type != family.traits.type) continue;
    Builder builder(header, projector, family.traits);
    if (builder.status().ok() && !family.traits.own_patches) builder.patches();
    if (builder.status().ok()) family.build(builder);
    if (!builder.status().ok()) return builder.status();
    return std::move(builder.program);
  }
  return error(Code::kNotSupported, "pictures of the projector type \"%s\" cannot be encoded",
               projector.family->type);
}

}  // namespace sluice::vision

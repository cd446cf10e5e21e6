#include "vision/builder.h"

#include <cmath>

#include "gguf/printable.h"

namespace sluice::vision {
namespace {

constexpr int64_t kMaxColumns = 1 << 20;  // of a matrix
constexpr int64_t kMaxHeadDim = 1024;
constexpr uint32_t kMaxWindow = 1024;

bool float_type(gguf::TensorType type) {
  return type == gguf::TensorType::kF32 || type == gguf::TensorType::kF16 ||
         type == gguf::TensorType::kBF16;
}

}  // namespace

Builder::Builder(const gguf::Header& from, const media::Projector& of, const Traits& with)
    : header(from), projector(of), traits(with), width_(of.n_embd) {
  program.patch = of.patch_size;
  program.shifted = with.shifted;
  program.order = with.order;
  program.rope = with.rope;
  if (header.get_bool("clip.use_gelu").value_or(false)) {
    activation_ = Activation::kGeluTanh;
  } else if (header.get_bool("clip.use_silu").value_or(false)) {
    activation_ = Activation::kSilu;
  }
  if (traits.order == Order::kWindows) {
    window_pattern_ = header.get_u64("clip.vision.n_wa_pattern").value_or(0);
    program.window = 112 / of.patch_size / 2;
    if (program.window == 0 || program.window > kMaxWindow) {
      fail(error(Code::kBadHeader, "the projector's patches do not fit its windows of 112 pixels"));
    }
  }
  if (of.n_layers == 0) return;
  program.head_dim = of.n_heads == 0 ? 0 : static_cast<int32_t>(width_ / of.n_heads);
  if (of.n_heads == 0 || width_ % of.n_heads != 0 || program.head_dim > kMaxHeadDim ||
      (with.rope != Rope::kNone && program.head_dim % 4 != 0)) {
    fail(error(Code::kBadHeader,
               "the projector's %lld values cannot be divided among %u attention heads",
               static_cast<long long>(width_), of.n_heads));
  }
}

void Builder::fail(const Status& status) {
  if (status_.ok()) status_ = status;
}

bool Builder::has(const std::string& name) const {
  return header.find_tensor(name) != nullptr;
}

const gguf::Tensor* Builder::find(const std::string& name) {
  const gguf::Tensor* tensor = header.find_tensor(name);
  if (tensor == nullptr) {
    fail(error(Code::kMissingTensor, "the projector has no tensor %s", name.c_str()));
  }
  return tensor;
}

int32_t Builder::mat(const std::string& name, int64_t rows, int64_t cols, bool plain) {
  const gguf::Tensor* tensor = find(name);
  if (tensor == nullptr) return 0;
  // A convolution's matrix has three dimensions of inputs.
  const uint64_t all = tensor->rows() * tensor->cols();
  const auto wide = static_cast<uint64_t>(cols);
  if (cols <= 0 || cols > kMaxColumns || all == 0 || all % wide != 0 || tensor->rows() == 0 ||
      (rows > 0 && all / wide != static_cast<uint64_t>(rows)) || wide % tensor->cols() != 0 ||
      all / wide > kMaxColumns) {
    fail(error(Code::kBadShape,
               "the projector's tensor %s has %llu x %llu values, but should have %lld inputs%s",
               name.c_str(), static_cast<unsigned long long>(tensor->rows()),
               static_cast<unsigned long long>(tensor->cols()), static_cast<long long>(cols),
               rows > 0 ? (" and " + std::to_string(rows) + " outputs").c_str() : ""));
    return 0;
  }
  Mat out;
  out.name = name;
  out.type = static_cast<kernels::Type>(tensor->type);
  out.rows = static_cast<int64_t>(all / wide);
  out.cols = cols;
  out.row_bytes = static_cast<int64_t>(tensor->bytes / (all / wide));
  out.file = tensor->file;
  out.offset = tensor->offset;
  out.plain = plain;
  program.mats.push_back(std::move(out));
  return static_cast<int32_t>(program.mats.size()) - 1;
}

int32_t Builder::vec(const std::string& name, int64_t n) {
  const gguf::Tensor* tensor = find(name);
  if (tensor == nullptr) return 0;
  const uint64_t values = tensor->rows() * tensor->cols();
  if (values != static_cast<uint64_t>(n) || n <= 0) {
    fail(error(Code::kBadShape, "the projector's tensor %s has %llu values instead of %lld",
               name.c_str(), static_cast<unsigned long long>(values), static_cast<long long>(n)));
    return 0;
  }
  if (!float_type(tensor->type)) {
    fail(error(Code::kUnsupportedType, "the projector's tensor %s must be F32, F16 or BF16",
               name.c_str()));
    return 0;
  }
  program.vecs.push_back({name, static_cast<kernels::Type>(tensor->type), n, tensor->file,
                          tensor->offset, tensor->bytes});
  return static_cast<int32_t>(program.vecs.size()) - 1;
}

int32_t Builder::optional_vec(const std::string& name, int64_t n) {
  return has(name) ? vec(name, n) : -1;
}

int64_t Builder::rows_of(int32_t mat) const {
  return program.mats.empty() ? 0 : program.mats[static_cast<size_t>(mat)].rows;
}

int64_t Builder::rows_of(const std::string& name) const {
  const gguf::Tensor* tensor = header.find_tensor(name);
  return tensor == nullptr ? 0 : static_cast<int64_t>(tensor->rows());
}

Op& Builder::op(OpKind kind, Buf in, Buf out) {
  Op made;
  made.kind = kind;
  made.in = in;
  made.out = out;
  program.ops.push_back(made);
  return program.ops.back();
}

// Gemma 4: the input and the output of a matrix are kept within limits.
void Builder::clamp(const std::string& name, Buf in, Buf out, int64_t col, int64_t n) {
  const int32_t least = optional_vec(name + "_min", 1), most = optional_vec(name + "_max", 1);
  if (least < 0 && most < 0) return;
  Op& made = op(OpKind::kClamp, in, out);
  made.vec = least;
  made.vec2 = most;
  made.in_col = made.out_col = static_cast<int32_t>(col);
  made.n = static_cast<int32_t>(n);
}

int64_t Builder::matmul(const std::string& name, Buf in, int64_t cols, Buf out, int64_t rows,
                        int64_t out_col, int64_t total) {
  if (has(name + ".input_min") || has(name + ".input_max")) {
    const Buf own = in == Buf::kY && out != Buf::kT ? Buf::kT : in;  // kY has further readers
    clamp(name + ".input", in, own, 0, cols);
    in = own;
  }
  const int32_t index = mat(name + ".weight", rows, cols);
  const int64_t found = rows_of(index);
  Op made;
  made.kind = OpKind::kMatmul;
  made.in = in;
  made.out = out;
  made.mat = index;
  made.vec = optional_vec(name + ".bias", found);
  made.out_col = static_cast<int32_t>(out_col);
  made.total = static_cast<int32_t>(total);
  program.ops.push_back(made);
  clamp(name + ".output", out, out, out_col, found);
  return found;
}

void Builder::norm(const std::string& name, Buf in, Buf out, int64_t n, NormKind kind, float eps) {
  const int32_t weight = name.empty() ? -1 : vec(name + ".weight", n);
  const int32_t bias =
      name.empty() || kind == NormKind::kRms ? -1 : optional_vec(name + ".bias", n);
  Op& made = op(OpKind::kNorm, in, out);
  made.vec = weight;
  made.vec2 = bias;
  made.n = static_cast<int32_t>(n);
  made.norm = kind;
  made.eps = eps;
}

void Builder::gated(Activation act, Buf gate, Buf out) {
  Op& made = op(OpKind::kActivation, gate, out);
  made.act = act;
  made.gated = true;
}

void Builder::merge(int32_t side, bool channels_first, Buf in, Buf out) {
  Op& made = op(OpKind::kMerge, in, out);
  made.n = side;
  made.channels_first = channels_first;
}

void Builder::emit(Buf in, int64_t rows) {
  for (const Op& each : program.ops) {
    if (each.kind != OpKind::kEmit || each.n == rows) continue;
    fail(error(Code::kBadShape,
               "the projector's deepstack tensors have %d outputs, but its last one has %lld",
               each.n, static_cast<long long>(rows)));
  }
  program.n_out = static_cast<int32_t>(rows) * (1 + n_deepstack);
  Op& made = op(OpKind::kEmit, in, Buf::kNone);
  made.n = static_cast<int32_t>(rows);
}

void Builder::patches() {
  const int64_t inputs = int64_t{3} * program.patch * program.patch;
  op(OpKind::kPatches, Buf::kNone, Buf::kH).n = static_cast<int32_t>(program.patch);
  const int32_t first = mat("v.patch_embd.weight", width_, inputs);
  const int32_t bias = optional_vec("v.patch_embd.bias", width_);
  Op& made = op(OpKind::kMatmul, Buf::kH, Buf::kX);
  made.mat = first;
  made.vec = bias;
  if (traits.two_convs) {
    const int32_t second = mat("v.patch_embd.weight.1", width_, inputs);
    Op& more = op(OpKind::kMatmul, Buf::kH, Buf::kX);
    more.mat = second;
    more.add = true;
  }
  if (has("v.norm_embd.weight")) {
    norm("v.norm_embd", Buf::kX, Buf::kX, width_, traits.norm, eps());
  }
  if (has("v.class_embd")) {
    const int32_t row = vec("v.class_embd", width_);
    op(OpKind::kAppendRow, Buf::kX, Buf::kX).vec = row;
  }
  if (traits.positions != Positions::kNone) {
    const int32_t table = mat("v.position_embd.weight", 0, width_, /*plain=*/true);
    Op& positions = op(OpKind::kAddTable, Buf::kX, Buf::kX);
    positions.mat = table;
    positions.positions = traits.positions;
  }
  if (has("v.pre_ln.weight")) norm("v.pre_ln", Buf::kX, Buf::kX, width_, traits.norm, eps());
}

Reach Builder::reach_of(int32_t layer) const {
  if (window_pattern_ == 0) return Reach::kAll;
  return static_cast<uint64_t>(layer + 1) % window_pattern_ == 0 ? Reach::kAll : Reach::kWindow;
}

// Queries, keys and values side by side in kH, of what is in kY, or in kX without a norm before.
void Builder::qkv(const std::string& prefix) {
  const Buf in = traits.norm_after ? Buf::kX : Buf::kY;
  if (has(prefix + "attn_qkv.weight")) {
    matmul(prefix + "attn_qkv", in, width_, Buf::kH, 3 * width_);
  } else {
    int64_t col = 0;
    for (const char* name : {"attn_q", "attn_k", "attn_v"}) {
      matmul(prefix + name, in, width_, Buf::kH, width_, col, 3 * width_);
      col += width_;
    }
  }
  const int32_t heads = static_cast<int32_t>(projector.n_heads);
  const auto head_norm = [&](const std::string& name, int64_t col) {
    if (!name.empty() && !has(name + ".weight")) return;
    norm(name, Buf::kH, Buf::kH, program.head_dim, NormKind::kRms, eps());
    program.ops.back().groups = heads;
    program.ops.back().in_col = program.ops.back().out_col = static_cast<int32_t>(col);
  };
  head_norm(prefix + "attn_q_norm", 0);
  head_norm(prefix + "attn_k_norm", width_);
  if (traits.value_norm) head_norm("", 2 * width_);
}

// kX += what is in kT, after an optional norm and scales of its own.
void Builder::add_back(const std::string& scale, const std::string& post_norm,
                       const std::string& norm_name) {
  if (traits.norm_after) norm(norm_name, Buf::kT, Buf::kT, width_, traits.norm, eps());
  if (has(post_norm + ".weight")) {
    norm(post_norm, Buf::kT, Buf::kT, width_, NormKind::kRms, eps());
  }
  if (has(scale + ".weight")) {
    const int32_t by = vec(scale + ".weight", width_);
    op(OpKind::kAffine, Buf::kT, Buf::kT).vec = by;
  }
  op(OpKind::kAdd, Buf::kT, Buf::kX);
}

void Builder::attention(const std::string& prefix, const std::string& norm_name, Reach reach) {
  if (!traits.norm_after) {
    norm(prefix + norm_name, Buf::kX, Buf::kY, width_, traits.norm, eps());
  }
  qkv(prefix);
  const int32_t heads = static_cast<int32_t>(projector.n_heads);
  if (traits.rope != Rope::kNone) {
    Op& rope = op(OpKind::kRope, Buf::kH, Buf::kH);
    rope.groups = 2 * heads;
    rope.n = program.head_dim;
  }
  Op& attend = op(OpKind::kAttention, Buf::kH, Buf::kY);
  attend.in2 = Buf::kH;
  attend.in2_col = static_cast<int32_t>(width_);
  attend.groups = heads;
  attend.n = program.head_dim;
  attend.reach = reach;
  attend.value = traits.unit_scale ? 1.0f : 1.0f / std::sqrt(static_cast<float>(program.head_dim));
  matmul(prefix + "attn_out", Buf::kY, width_, Buf::kT, width_);
  add_back(prefix + "ls1", prefix + "attn_post_norm", prefix + norm_name);
}

void Builder::ffn(const std::string& prefix) {
  if (!traits.norm_after) norm(prefix + "ln2", Buf::kX, Buf::kY, width_, traits.norm, eps());
  const Buf in = traits.norm_after ? Buf::kX : Buf::kY;
  std::string up = prefix + "ffn_up", down = prefix + "ffn_down";
  // Files of old converters have these two names swapped.
  if (rows_of(up + ".weight") == width_ && rows_of(down + ".weight") != width_) up.swap(down);
  const std::string gate = prefix + "ffn_gate";
  if (has(gate + ".weight")) {
    const int64_t wide = matmul(gate, in, width_, Buf::kG);
    matmul(up, in, width_, Buf::kH, wide);
    gated(activation_, Buf::kG, Buf::kH);
    matmul(down, Buf::kH, wide, Buf::kT, width_);
  } else {
    const int64_t wide = matmul(up, in, width_, Buf::kH);
    activation(activation_, Buf::kH);
    matmul(down, Buf::kH, wide, Buf::kT, width_);
  }
  add_back(prefix + "ls2", prefix + "ffn_post_norm", prefix + "ln2");
  if (has(prefix + "out_scale.weight")) {
    const int32_t by = vec(prefix + "out_scale.weight", 1);
    op(OpKind::kScalar, Buf::kX, Buf::kX).vec = by;
  }
}

void Builder::blocks(int32_t first, int32_t end) {
  for (int32_t i = first; i < end && status_.ok(); ++i) {
    const std::string prefix = "v.blk." + std::to_string(i) + ".";
    attention(prefix, "ln1", reach_of(i));
    ffn(prefix);
    if (deepens(i)) deepstack(i);
  }
}

// Whether a block has a branch of its own to the output. Old files have no key for it.
bool Builder::deepens(int32_t layer) const {
  const gguf::Value* listed = header.find("clip.vision.is_deepstack_layers");
  const auto i = static_cast<uint64_t>(layer);
  if (listed != nullptr && i < listed->count && listed->number_at(i) != 0) return true;
  return has("v.deepstack." + std::to_string(layer) + ".fc1.weight");
}

void Builder::post_norm() {
  norm("v.post_ln", Buf::kX, Buf::kX, width_, traits.norm, eps());
}

// Qwen3-VL: a block's output as further values of every output token.
void Builder::deepstack(int32_t layer) {
  const std::string prefix = "v.deepstack." + std::to_string(layer) + ".";
  op(OpKind::kCopy, Buf::kX, Buf::kY);
  Op& squares = op(OpKind::kReshape, Buf::kY, Buf::kY);
  squares.n = 2;
  const int64_t wide = 4 * width_;
  norm(prefix + "norm", Buf::kY, Buf::kY, wide, NormKind::kLayer, eps());
  const int64_t hidden = matmul(prefix + "fc1", Buf::kY, wide, Buf::kH);
  activation(Activation::kGeluTanh, Buf::kH);
  const int64_t rows = matmul(prefix + "fc2", Buf::kH, hidden, Buf::kT);
  Op& out = op(OpKind::kEmit, Buf::kT, Buf::kNone);
  out.n = static_cast<int32_t>(rows);
  out.out_col = static_cast<int32_t>(rows) * ++n_deepstack;
}

}  // namespace sluice::vision

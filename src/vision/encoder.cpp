#include "vision/encoder.h"

#include <algorithm>

#include "vision/builder.h"

namespace sluice::vision {

Result<std::unique_ptr<Encoder>> Encoder::open(const gguf::Header& header,
                                               const media::Projector& projector,
                                               const EncoderOptions& options) {
  const bool named = options.kernels[0] != '\0';
  const kernels::Table* table = named ? kernels::by_name(options.kernels) : &kernels::best();
  if (table == nullptr) {
    return error(Code::kInvalidArgument,
                 "the instruction set \"%.32s\" is unknown or not available", options.kernels);
  }
  Result<Program> program = build(header, projector);
  if (!program.ok()) return program.status();
  std::unique_ptr<Encoder> out(new Encoder);
  out->program_ = std::move(*program);
  out->projector_ = projector;
  out->options_ = options;
  out->table_ = table;
  for (const Mat& mat : out->program_.mats) {
    if (!out->table_->supports(mat.type)) {
      return error(Code::kUnsupportedType, "the projector's tensor %s has an unsupported type",
                   mat.name.c_str());
    }
  }
  out->weights_ = std::make_unique<Weights>(out->program_, *out->table_, *options.pool);
  return out;
}

Result<EncoderPlan> Encoder::plan_for(uint32_t width, uint32_t height, uint64_t budget) const {
  Result<Sizes> sizes = sizes_for(program_, *table_, width, height);
  if (!sizes.ok()) return sizes.status();
  return make_plan(program_, *table_, *sizes, options_.pool->n_threads(), options_.base_bytes,
                   budget);
}

Result<uint32_t> Encoder::n_tokens(uint32_t width, uint32_t height) const {
  Result<Sizes> sizes = sizes_for(program_, *table_, width, height);
  if (!sizes.ok()) return sizes.status();
  return static_cast<uint32_t>(sizes->n_tokens);
}

Status Encoder::check_fits(uint64_t media_width) const {
  if (width() == media_width) return {};
  return error(Code::kBadShape,
               "the projector's tokens have %u values, but the model's embeddings have %llu: it "
               "belongs to another model",
               width(), static_cast<unsigned long long>(media_width));
}

Result<FlatInput> Encoder::flatten(const media::Image& image) const {
  const uint64_t budget = options_.memory_budget == 0 ? UINT64_MAX : options_.memory_budget;
  return vision::flatten(program_, projector_, *table_, image, budget - options_.base_bytes);
}

Status Encoder::allocate() {
  const Sizes& sizes = plan_.sizes;
  for (size_t i = 0; i < kBuffers; ++i) {
    const auto values = static_cast<uint64_t>(sizes.buffers[i]);
    SLUICE_RETURN_IF_ERROR(buffers_[i].allocate(round_up_to_line(values * sizeof(float))));
  }
  SLUICE_RETURN_IF_ERROR(keys_.allocate(round_up_to_line(sizes.key_bytes)));
  SLUICE_RETURN_IF_ERROR(values_.allocate(round_up_to_line(sizes.value_bytes)));
  SLUICE_RETURN_IF_ERROR(q8_.allocate(sizes.q8_bytes));
  const auto threads = static_cast<uint64_t>(options_.pool->n_threads());
  SLUICE_RETURN_IF_ERROR(scratch_.allocate(threads * sizes.scratch_bytes));
  cells_ = order_cells(sizes.columns, sizes.rows, program_.order, program_.window);
  tiles_ = {};
  tiles_.reserve(static_cast<size_t>(sizes.tiles));
  key_runs_ = {};
  for (size_t axis = 0; axis < 2 && program_.rope != Rope::kNone; ++axis) {
    angles_[axis] =
        axis_angles(program_.rope, program_.head_dim, axis, axis == 0 ? sizes.rows : sizes.columns);
  }
  return {};
}

Status Encoder::begin(const media::Image& image, std::span<float> out) {
  running_ = false;
  if (!weights_->idle()) {
    return error(Code::kInvalidArgument, "the encoder's read requests must be filled first");
  }
  if (!weights_->failure().ok()) return weights_->failure();
  if (image.width != width_px_ || image.height != height_px_) {
    Result<EncoderPlan> plan = plan_for(image.width, image.height, options_.memory_budget);
    if (!plan.ok()) return plan.status();
    // What the last input held is released before anything is allocated.
    width_px_ = height_px_ = 0;
    for (AlignedBuffer& buffer : buffers_) buffer = AlignedBuffer();
    for (AlignedBuffer* buffer : {&q8_, &keys_, &values_, &scratch_}) *buffer = AlignedBuffer();
    plan_ = std::move(*plan);
    SLUICE_RETURN_IF_ERROR(weights_->adopt(plan_.weights));
    SLUICE_RETURN_IF_ERROR(allocate());
    width_px_ = image.width;
    height_px_ = image.height;
  }
  const auto wanted = static_cast<uint64_t>(plan_.sizes.n_tokens) * width();
  if (out.size() != wanted) {
    return error(Code::kInvalidArgument,
                 "the projector makes %lld tokens of %u values of this input, but the output has "
                 "%llu values",
                 static_cast<long long>(plan_.sizes.n_tokens), width(),
                 static_cast<unsigned long long>(out.size()));
  }
  image_ = &image;
  out_ = out;
  shapes_ = {};
  next_ = 0;
  part_ = 0;
  status_ = {};
  running_ = true;
  return {};
}

Step Encoder::step() {
  if (!running_) return next_ == program_.ops.size() && status_.ok() ? Step::kDone : Step::kFailed;
  weights_->poll(scratch(0), plan_.sizes.scratch_bytes);
  const auto failed = [this] {
    if (status_.ok()) status_ = weights_->failure();
    running_ = running_ && status_.ok();
    return !running_;
  };
  if (failed()) return Step::kFailed;
  if (next_ == 0 && !weights_->vectors_ready()) return Step::kBlocked;
  const Op& op = program_.ops[next_];
  const bool waits =
      op.mat >= 0 && part_ < weights_->n_units(op.mat) && !weights_->need(op.mat, part_);
  if (waits) {
    weights_->poll(scratch(0), plan_.sizes.scratch_bytes);
    return failed() ? Step::kFailed : Step::kBlocked;
  }
  const bool done = run(op);
  if (failed()) return Step::kFailed;
  if (!done) return Step::kProgress;
  part_ = 0;
  if (++next_ < program_.ops.size()) return Step::kProgress;
  running_ = false;
  return Step::kDone;
}

bool Encoder::run(const Op& op) {
  switch (op.kind) {
    case OpKind::kPatches: {
      const int64_t values = int64_t{3} * op.n * op.n;
      const Sizes& sizes = plan_.sizes;
      shape(op.out) = {int64_t{sizes.columns} * sizes.rows, values, sizes.columns, sizes.rows,
                       program_.order};
      for_rows(shape(op.out).rows, [&](int64_t patch) {
        patch_values({*image_, projector_, program_.shifted, op.n},
                     cells_[static_cast<size_t>(patch)], at(op.out) + patch * values);
      });
      return true;
    }
    case OpKind::kMatmul:
      return matmul(op);
    case OpKind::kMatmulT:
      return matmul_transposed(op);
    case OpKind::kAddTable:
      return add_table(op);
    case OpKind::kAttention:
      return attention(op);
    default: {
      const Shapes before = shapes_;
      status_ = apply(program_, op, &shapes_);
      if (!status_.ok()) return false;
      run_simple(op, before);
      return true;
    }
  }
}

}  // namespace sluice::vision

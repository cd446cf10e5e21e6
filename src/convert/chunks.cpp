// Chunks of a batch are read, quantized, decoded and measured in parallel, then emitted in order.
#include "convert/chunks.h"

#include <algorithm>
#include <cmath>

#include "gguf/printable.h"

namespace sluice::convert {
namespace {

constexpr uint64_t kMinPiece = 1 << 12;
constexpr float kMaxInBlocks = 1e6;      // an f16 scale cannot hold much more
constexpr uint64_t kErrorWindows = 512;  // samples of kMinPiece values for a tensor's error
constexpr uint64_t kBoundsWindows = 64;  // samples for its mean and deviation
constexpr double kDeviations = 3;        // deviations beyond which a value is an outlier
constexpr uint64_t kSlotsAThread = 4;    // enough to balance the threads' work

// Bytes held: stored values in and out for each slot, and three rows of f32 for each thread.
uint64_t bytes_for(uint64_t threads, uint64_t slots, uint64_t piece, bool gptq) {
  return (slots * 2 + threads * 3) * piece * 4 + (gptq ? threads * sizeof(GptqRoom) : 0);
}

}  // namespace

void weigh(const gguf::Tensor& tensor, const std::vector<float>& importance, uint64_t first,
           uint64_t n, float* w) {
  const uint64_t cols = tensor.ne[0];
  const bool by_expert = importance.size() > cols;
  for (uint64_t done = 0; done < n;) {
    const uint64_t row = (first + done) / cols, col = (first + done) % cols;
    const uint64_t expert = by_expert ? row / tensor.ne[1] % tensor.ne[2] : 0;
    const uint64_t count = std::min(cols - col, n - done);
    std::copy_n(importance.data() + expert * cols + col, count, w + done);
    done += count;
  }
}

Result<std::unique_ptr<ChunkMaker>> ChunkMaker::create(const Source& model, int threads,
                                                       uint64_t budget, uint64_t held,
                                                       const Hessians* hessians) {
  const bool gptq = hessians != nullptr;
  uint64_t least = kMinPiece;  // with error feedback at least one row
  while (gptq && least < hessians->max_cols()) least *= 2;
  if (gptq) held += hessians->factor_bytes();
  const uint64_t wanted =
      threads > 0 ? static_cast<uint64_t>(threads) : static_cast<uint64_t>(default_thread_count());
  uint64_t n = std::min<uint64_t>(wanted, kMaxThreads), slots = n * kSlotsAThread,
           piece = std::max(kPieceValues, least);
  const auto fits = [&] { return held + bytes_for(n, slots, piece, gptq) <= budget; };
  while (!fits() && piece > least) piece /= 2;
  while (!fits() && slots > n) slots /= 2;
  while (!fits() && n > 1) slots = --n;
  if (!fits()) {
    return error(Code::kBudgetTooSmall,
                 "converting this model needs --memory-budget of at least %llu bytes",
                 static_cast<unsigned long long>(held + bytes_for(1, 1, least, gptq)));
  }
  std::unique_ptr<ChunkMaker> maker(new ChunkMaker(model, static_cast<int>(n), piece, slots));
  maker->memory_ = held + bytes_for(n, slots, piece, gptq);
  for (Room& room : maker->rooms_) {
    if (gptq) room.gptq = std::make_unique<GptqRoom>();
  }
  return maker;
}

ChunkMaker::ChunkMaker(const Source& model, int threads, uint64_t piece, uint64_t slots)
    : model_(model),
      kernels_(kernels::best()),
      quantizers_(best_quantizers()),
      piece_(piece),
      slots_(slots),
      pool_(threads) {
  rooms_.resize(static_cast<size_t>(threads));
  for (Slot& slot : slots_) {
    slot.in.resize(piece * Source::kMaxValueBytes);
    slot.out.resize(piece * 4);
  }
  for (Room& room : rooms_) {
    room.x.resize(piece);
    room.y.resize(piece);
    room.w.resize(piece, 1);
  }
}

Status ChunkMaker::copy(const gguf::Tensor& tensor, const Put& put, const RowOrder* order) {
  std::vector<uint8_t>& room = slots_[0].in;
  for (uint64_t at = 0; at < tensor.bytes; at += room.size()) {
    const uint64_t n = std::min<uint64_t>(room.size(), tensor.bytes - at);
    const std::span<uint8_t> bytes(room.data(), n);
    SLUICE_RETURN_IF_ERROR(model_.read_bytes(tensor, at, bytes, order));
    SLUICE_RETURN_IF_ERROR(put(bytes));
  }
  return {};
}

void ChunkMaker::make_piece(const gguf::Tensor& tensor, gguf::TensorType type,
                            const std::vector<float>* importance, uint64_t first, uint64_t n,
                            const RowForm& form, const Bounds& bounds, Slot* slot, Room* room) {
  const gguf::TypeInfo& info = *gguf::type_info(type);
  const auto kernel_type = static_cast<kernels::Type>(type);
  slot->errors = {};
  slot->bytes = n / info.block_size * info.block_bytes;
  slot->status = model_.read(tensor, first, n, slot->in, room->x.data(), form.order);
  if (!slot->status.ok()) return;
  if (importance != nullptr) weigh(tensor, *importance, first, n, room->w.data());
  const auto count = static_cast<int64_t>(n);
  if (form.clusters != nullptr) form.clusters->add(first, n, -1, room->x.data());
  const auto beyond = [](float x) { return std::fabs(x) > kMaxInBlocks; };
  const bool held =
      info.block_size == 1 || std::none_of(room->x.begin(), room->x.begin() + count, beyond);
  if (form.hessians != nullptr) {
    quantize_rows(tensor, type, n, slot, room);
  } else {
    quantizers_.of(kernel_type)(room->x.data(), room->w.data(), count, slot->out.data());
  }
  kernels::best().dequantize(kernel_type, slot->out.data(), count, room->y.data());
  if (form.clusters != nullptr) {  // errors are of whole rows
    form.clusters->add(first, n, 1, room->x.data());
    form.clusters->add(first, n, 1, room->y.data());
  }
  quantizers_.add_errors(room->x.data(), room->y.data(), room->w.data(), count, bounds,
                         &slot->errors);
  if (!held || !std::isfinite(slot->errors.yy)) {
    slot->status = error(Code::kBadWeights, "tensor \"%s\" has values outside the range of %s",
                         gguf::printable(tensor.name).c_str(), info.name);
  }
}

void ChunkMaker::quantize_rows(const gguf::Tensor& tensor, gguf::TensorType type, uint64_t n,
                               Slot* slot, Room* room) {
  const gguf::TypeInfo& info = *gguf::type_info(type);
  const auto kernel_type = static_cast<kernels::Type>(type);
  Gptq* const quantize = quantizers_.gptq(kernel_type);
  const uint64_t cols = tensor.ne[0], row_bytes = cols / info.block_size * info.block_bytes;
  for (uint64_t row = 0; row < n / cols; row += GptqRoom::kRows) {
    const uint64_t rows = std::min<uint64_t>(GptqRoom::kRows, n / cols - row);
    for (const SpanFactors& span : factors_) {
      const uint64_t at = span.first / info.block_size * info.block_bytes;
      quantize(span,
               {&kernels_, kernel_type, static_cast<int>(rows),
                room->x.data() + row * cols + span.first, static_cast<int64_t>(cols),
                slot->out.data() + row * row_bytes + at, static_cast<int64_t>(row_bytes)},
               room->gptq.get());
    }
  }
}

Status ChunkMaker::make(const gguf::Tensor& tensor, gguf::TensorType type,
                        const std::vector<float>* importance, const Put& put, TensorReport* report,
                        const RowForm& wanted) {
  RowForm form = wanted;
  report->values = tensor.ne[0] * tensor.rows();
  report->bytes_before = tensor.bytes;
  report->bytes =
      report->values / gguf::type_info(type)->block_size * gguf::type_info(type)->block_bytes;
  if (type == tensor.type && form.clusters == nullptr && model_.as_stored(tensor)) {
    return copy(tensor, put, form.order);
  }
  if (quantizers_.of(static_cast<kernels::Type>(type)) == nullptr) {
    return error(Code::kUnsupportedType,
                 "tensor \"%s\": quantizing to its type %s is unsupported; choose another --type",
                 gguf::printable(tensor.name).c_str(), gguf::type_info(type)->name);
  }
  report->weighted = importance != nullptr;
  if (importance == nullptr) forget_weights();
  Bounds bounds;
  if (gguf::type_info(type)->block_size > 1) {
    const Result<Bounds> found = bounds_of(tensor);
    if (!found.ok()) return found.status();
    bounds = *found;
  }
  if (form.hessians != nullptr && quantizers_.gptq(static_cast<kernels::Type>(type)) == nullptr) {
    form.hessians = nullptr;
  }
  Errors all;
  const uint64_t cols = tensor.ne[0];
  if (form.hessians == nullptr) {
    SLUICE_RETURN_IF_ERROR(
        make_range(tensor, type, importance, 0, report->values, piece_, form, bounds, put, &all));
  } else {
    const uint64_t matrices = form.hessians->size(), values = report->values / matrices;
    const std::unique_ptr<Hessian> sum = matrices > 1 ? sum_of(*form.hessians) : nullptr;
    for (uint64_t m = 0; m < matrices; ++m) {
      use_hessian(*form.hessians, m, sum.get());
      SLUICE_RETURN_IF_ERROR(make_range(tensor, type, importance, m * values, (m + 1) * values,
                                        piece_ / cols * cols, form, bounds, put, &all));
    }
  }
  report->mean_squared_error = all.squared / static_cast<double>(report->values);
  report->cosine = all.cosine();
  report->outlier_share = all.outlier_share();
  report->outlier_error = all.outlier_error();
  return {};
}

Status ChunkMaker::make_range(const gguf::Tensor& tensor, gguf::TensorType type,
                              const std::vector<float>* importance, uint64_t first, uint64_t end,
                              uint64_t piece, const RowForm& form, const Bounds& bounds,
                              const Put& put, Errors* errors) {
  const uint64_t batch = slots_.size() * piece;
  for (; first < end; first += batch) {
    const uint64_t left = std::min(batch, end - first);
    const auto n = static_cast<int64_t>((left + piece - 1) / piece);
    pool_.parallel_for(n, [&](int64_t i, int thread) {
      const auto at = static_cast<size_t>(i);
      const uint64_t from = first + at * piece;
      make_piece(tensor, type, importance, from, std::min(piece, end - from), form, bounds,
                 &slots_[at], &rooms_[static_cast<size_t>(thread)]);
    });
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
      const Slot& slot = slots_[i];
      SLUICE_RETURN_IF_ERROR(slot.status);
      SLUICE_RETURN_IF_ERROR(put({slot.out.data(), slot.bytes}));
      errors->add(slot.errors);
    }
  }
  return {};
}

void ChunkMaker::use_hessian(const TensorHessians& hessians, uint64_t matrix, const Hessian* all) {
  const Hessian* const own = hessians[matrix].get();
  if (all != nullptr) {
    factorized_ = nullptr;
    factors_ = factorize(with_prior(own, *all), &pool_);
  } else if (own != factorized_) {
    factorized_ = own;
    factors_ = factorize(*own, &pool_);
  }
}

void ChunkMaker::forget_weights() {
  for (Room& room : rooms_) std::fill(room.w.begin(), room.w.end(), 1.0f);
}

Status ChunkMaker::sample(const gguf::Tensor& tensor, uint64_t windows, const One& one,
                          const std::function<void(const Slot&)>& then) {
  const uint64_t values = tensor.ne[0] * tensor.rows();
  const uint64_t n_windows = (values + kMinPiece - 1) / kMinPiece;
  const uint64_t stride = std::max<uint64_t>(1, n_windows / windows);
  const uint64_t batch = slots_.size() * stride;
  for (uint64_t window = 0; window < n_windows; window += batch) {
    const uint64_t left = std::min(batch, n_windows - window);
    const auto n = static_cast<int64_t>((left + stride - 1) / stride);
    pool_.parallel_for(n, [&](int64_t i, int thread) {
      const auto at = static_cast<size_t>(i);
      const uint64_t from = (window + at * stride) * kMinPiece;
      one(from, std::min(kMinPiece, values - from), &slots_[at],
          &rooms_[static_cast<size_t>(thread)]);
    });
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
      SLUICE_RETURN_IF_ERROR(slots_[i].status);
      then(slots_[i]);
    }
  }
  return {};
}

Status ChunkMaker::measure(const gguf::Tensor& tensor, gguf::TensorType type,
                           const std::vector<float>* importance, const Bounds& bounds,
                           Errors* errors) {
  if (importance == nullptr) forget_weights();
  return sample(
      tensor, kErrorWindows,
      [&](uint64_t first, uint64_t n, Slot* slot, Room* room) {
        make_piece(tensor, type, importance, first, n, {}, bounds, slot, room);
      },
      [errors](const Slot& slot) { errors->add(slot.errors); });
}

Result<Bounds> ChunkMaker::bounds_of(const gguf::Tensor& tensor) {
  double sum = 0, squares = 0, values = 0;
  const auto look = [&](uint64_t first, uint64_t n, Slot* slot, Room* room) {
    slot->status = model_.read(tensor, first, n, slot->in, room->x.data());
    if (!slot->status.ok()) return;
    slot->sum = slot->squares = 0;
    for (size_t i = 0; i < n; ++i) {
      const auto x = static_cast<double>(room->x[i]);
      slot->sum += x;
      slot->squares += x * x;
    }
    slot->values = static_cast<double>(n);
  };
  SLUICE_RETURN_IF_ERROR(sample(tensor, kBoundsWindows, look, [&](const Slot& slot) {
    sum += slot.sum;
    squares += slot.squares;
    values += slot.values;
  }));
  const double mean = sum / values;
  const double reach = kDeviations * std::sqrt(std::max(0.0, squares / values - mean * mean));
  return Bounds{static_cast<float>(mean - reach), static_cast<float>(mean + reach)};
}

}  // namespace sluice::convert

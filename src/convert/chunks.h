// Converts tensors one after another, in chunks that several threads make in parallel and that are
// emitted in order.
#pragma once

#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "convert/convert.h"
#include "convert/gptq.h"
#include "convert/quantize.h"
#include "gguf/embedding_clusters.h"

namespace sluice::convert {

inline constexpr uint64_t kPieceValues = 1 << 16;  // values; a multiple of every type's block

// Fills w with the error weights of the values [first, first + n) of `tensor`, in row order.
void weigh(const gguf::Tensor& tensor, const std::vector<float>& importance, uint64_t first,
           uint64_t n, float* w);

// How the rows of a tensor are written.
struct RowForm {
  const RowOrder* order = nullptr;                    // row order; null: as stored
  const gguf::EmbeddingClusters* clusters = nullptr;  // centres to subtract; null: none
  const TensorHessians* hessians = nullptr;           // for error feedback; null: none
};

class ChunkMaker {
 public:
  // Uses at most `budget` bytes, with fewer threads and smaller chunks if that is little. `held`
  // bytes are used elsewhere. `hessians`, unless null, are those of make(). Errors:
  // kBudgetTooSmall, naming the smallest budget that works.
  [[nodiscard]] static Result<std::unique_ptr<ChunkMaker>> create(
      const Source& model, int threads, uint64_t budget, uint64_t held,
      const Hessians* hessians = nullptr);

  using Put = std::function<Status(std::span<const uint8_t>)>;
  // Writes `tensor` as `type`, its rows as `form` says. `importance` may be null. Fills values,
  // bytes and errors of *report.
  [[nodiscard]] Status make(const gguf::Tensor& tensor, gguf::TensorType type,
                            const std::vector<float>* importance, const Put& put,
                            TensorReport* report, const RowForm& form = {});
  // Measures the errors of `type` on a few thousand evenly spaced blocks of the tensor. The sample
  // does not depend on budget or threads.
  [[nodiscard]] Status measure(const gguf::Tensor& tensor, gguf::TensorType type,
                               const std::vector<float>* importance, const Bounds& bounds,
                               Errors* errors);
  // Mean plus and minus three deviations, from evenly spaced values.
  [[nodiscard]] Result<Bounds> bounds_of(const gguf::Tensor& tensor);
  // Bytes held in total, including `held`.
  [[nodiscard]] uint64_t memory() const { return memory_; }

 private:
  struct Slot {  // one chunk in progress
    std::vector<uint8_t> in, out;
    uint64_t bytes = 0;
    Errors errors;
    double values = 0, sum = 0, squares = 0;  // sums for the bounds
    Status status;
  };
  struct Room {  // scratch of one thread
    std::vector<float> x, y, w;
    std::unique_ptr<GptqRoom> gptq;
  };

  ChunkMaker(const Source& model, int threads, uint64_t piece, uint64_t slots);
  // Runs `one` in several threads for `windows` evenly spaced places in `tensor`, then `then` for
  // each slot in order.
  using One = std::function<void(uint64_t first, uint64_t n, Slot* slot, Room* room)>;
  [[nodiscard]] Status sample(const gguf::Tensor& tensor, uint64_t windows, const One& one,
                              const std::function<void(const Slot&)>& then);
  [[nodiscard]] Status copy(const gguf::Tensor& tensor, const Put& put, const RowOrder* order);
  void make_piece(const gguf::Tensor& tensor, gguf::TensorType type,
                  const std::vector<float>* importance, uint64_t first, uint64_t n,
                  const RowForm& form, const Bounds& bounds, Slot* slot, Room* room);
  // Makes the values [first, end) in chunks of `piece` values and adds their errors.
  [[nodiscard]] Status make_range(const gguf::Tensor& tensor, gguf::TensorType type,
                                  const std::vector<float>* importance, uint64_t first,
                                  uint64_t end, uint64_t piece, const RowForm& form,
                                  const Bounds& bounds, const Put& put, Errors* errors);
  // Computes factors_ for one matrix of a tensor. `all` is the sum of an expert's tensor.
  void use_hessian(const TensorHessians& hessians, uint64_t matrix, const Hessian* all);
  // Quantizes the n values of whole rows in room->x with error feedback.
  void quantize_rows(const gguf::Tensor& tensor, gguf::TensorType type, uint64_t n, Slot* slot,
                     Room* room);
  void forget_weights();

  const Source& model_;
  const kernels::Table& kernels_;
  Quantizers quantizers_;
  uint64_t piece_;  // values per chunk
  uint64_t memory_ = 0;
  std::vector<Slot> slots_;
  std::vector<Room> rooms_;
  const Hessian* factorized_ = nullptr;  // of which factors_ are
  std::vector<SpanFactors> factors_;
  ThreadPool pool_;
};

}  // namespace sluice::convert

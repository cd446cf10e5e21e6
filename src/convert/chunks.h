// Makes the bytes of one tensor after the other, in pieces that several threads make at once and
// that leave in order.
#pragma once

#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "convert/convert.h"
#include "convert/quantize.h"
#include "gguf/embedding_clusters.h"

namespace sluice::convert {

inline constexpr uint64_t kPieceValues = 1 << 16;  // whole blocks of every type

// What errors of the values [first, first + n) of `tensor` count, row by row, into w.
void weigh(const gguf::Tensor& tensor, const std::vector<float>& importance, uint64_t first,
           uint64_t n, float* w);

// How the rows of a tensor are written.
struct RowForm {
  const RowOrder* order = nullptr;                    // in this one
  const gguf::EmbeddingClusters* clusters = nullptr;  // less the centres of their clusters
};

class ChunkMaker {
 public:
  // Memory for at most `bytes`; fewer threads and smaller pieces where that is little.
  // Errors: kBudgetTooSmall, naming what is `held` elsewhere and the least that works.
  [[nodiscard]] static Result<std::unique_ptr<ChunkMaker>> create(const Source& model, int threads,
                                                                  uint64_t budget, uint64_t held);

  using Put = std::function<Status(std::span<const uint8_t>)>;
  // Writes `tensor` as `type`, its rows in that form; importance may be null. Fills values, bytes
  // and errors of *report.
  [[nodiscard]] Status make(const gguf::Tensor& tensor, gguf::TensorType type,
                            const std::vector<float>* importance, const Put& put,
                            TensorReport* report, const RowForm& form = {});
  // The errors of `type`, measured on a few thousand blocks that lie evenly in the tensor: the same
  // ones whatever the budget and the threads.
  [[nodiscard]] Status measure(const gguf::Tensor& tensor, gguf::TensorType type,
                               const std::vector<float>* importance, const Bounds& bounds,
                               Errors* errors);
  // Three deviations from the mean, by values that lie as evenly.
  [[nodiscard]] Result<Bounds> bounds_of(const gguf::Tensor& tensor);
  // What all of it takes, `held` included.
  [[nodiscard]] uint64_t memory() const { return memory_; }

 private:
  struct Slot {  // a piece that is being made
    std::vector<uint8_t> in, out;
    uint64_t bytes = 0;
    Errors errors;
    double values = 0, sum = 0, squares = 0;  // of what bounds are found by
    Status status;
  };
  struct Room {  // of a thread
    std::vector<float> x, y, w;
  };

  ChunkMaker(const Source& model, int threads, uint64_t piece, uint64_t slots);
  // Runs `one` for so many places that lie evenly in `tensor`, in several threads, and `then` for
  // its slot, in their order.
  using One = std::function<void(uint64_t first, uint64_t n, Slot* slot, Room* room)>;
  [[nodiscard]] Status sample(const gguf::Tensor& tensor, uint64_t windows, const One& one,
                              const std::function<void(const Slot&)>& then);
  [[nodiscard]] Status copy(const gguf::Tensor& tensor, const Put& put, const RowOrder* order);
  void make_piece(const gguf::Tensor& tensor, gguf::TensorType type,
                  const std::vector<float>* importance, uint64_t first, uint64_t n,
                  const RowForm& form, const Bounds& bounds, Slot* slot, Room* room);
  void forget_weights();

  const Source& model_;
  Quantizers quantizers_;
  uint64_t piece_;  // values
  uint64_t memory_ = 0;
  std::vector<Slot> slots_;
  std::vector<Room> rooms_;
  ThreadPool pool_;
};

}  // namespace sluice::convert

// A vision encoder: pixels of one input to the projector's output, which takes the place of token
// embeddings. It does no I/O. Like a text model's forward pass, step() returns kBlocked while
// weights are missing, and whoever drives it fills the requests in queue(). The output has the same
// bits for every budget, number of threads and history of calls.
#pragma once

#include <memory>
#include <span>

#include "media/preprocess.h"
#include "vision/flat_input.h"
#include "vision/geometry.h"
#include "vision/weights.h"

namespace sluice::vision {

struct EncoderOptions {
  uint64_t memory_budget = 0;  // bytes; 0: what the encoder wants
  uint64_t base_bytes = 0;     // part of the budget already in use
  const char* kernels = "";    // kernel table by name; "": the best
  ThreadPool* pool = nullptr;  // outlives the encoder; required
};

enum class Step : uint8_t { kProgress, kBlocked, kDone, kFailed };

class Encoder {
 public:
  // Reads what the encoder needs of the header. Errors: kNotSupported (no encoder for this type,
  // named), kMissingTensor, kBadShape, kUnsupportedType, kBadHeader.
  [[nodiscard]] static Result<std::unique_ptr<Encoder>> open(const gguf::Header& header,
                                                             const media::Projector& projector,
                                                             const EncoderOptions& options);

  // What an input of this size takes within a budget (0: no limit), before anything is read.
  // Errors: kBudgetTooSmall (naming the smallest), kBadShape, kInvalidArgument (sizes).
  [[nodiscard]] Result<EncoderPlan> plan_for(uint32_t width, uint32_t height,
                                             uint64_t budget) const;
  // Tokens of an input of this size. Errors: plan_for()'s but for the budget.
  [[nodiscard]] Result<uint32_t> n_tokens(uint32_t width, uint32_t height) const;
  // Values of a token: the text model's width, or a multiple of it with deepstack.
  [[nodiscard]] uint32_t width() const { return static_cast<uint32_t>(program_.n_out); }

  // Replaces EncoderOptions::memory_budget for the inputs that begin from now on.
  void set_memory_budget(uint64_t budget) { options_.memory_budget = budget; }

  // Whether the output fits a text model (media::TextModel::media_width). Errors: kBadShape.
  [[nodiscard]] Status check_fits(uint64_t media_width) const;

  // Begins an input; `image` and `out` (n_tokens x width) must outlive the last step. No request
  // may be pending. Errors: plan_for()'s, kInvalidArgument (`out` has another size), kOutOfMemory.
  [[nodiscard]] Status begin(const media::Image& image, std::span<float> out);
  // A unit of work: at most one unit of weights, or one attention head. kDone: `out` is complete.
  [[nodiscard]] Step step();
  [[nodiscard]] const Status& status() const { return status_; }  // behind kFailed
  // Whether no read request is pending. If not, the encoder must not be destroyed.
  [[nodiscard]] bool idle() { return weights_->idle(); }
  // Whether an input was begun; then there is a queue.
  [[nodiscard]] bool started() const { return weights_->open(); }
  [[nodiscard]] residency::FillQueue& queue() { return weights_->queue(); }
  [[nodiscard]] const EncoderPlan& plan() const { return plan_; }  // of the input that was begun

  // The same input for another executor, within the budget. No input may be begun. Errors:
  // flatten()'s.
  [[nodiscard]] Result<FlatInput> flatten(const media::Image& image) const;

  // --- between two steps, for dumps
  [[nodiscard]] const Program& program() const { return program_; }
  [[nodiscard]] size_t n_done() const { return next_; }  // operations of this input
  // What a buffer holds: shape.rows x shape.cols values.
  struct Values {
    const Shape& shape;
    const float* data;
  };
  [[nodiscard]] Values values_of(Buf b) const { return {shapes_[static_cast<size_t>(b)], at(b)}; }
  [[nodiscard]] const char* kernels() const { return table_->name; }

 private:
  Encoder() = default;
  [[nodiscard]] Status allocate();
  [[nodiscard]] bool run(const Op& op);  // false: weights are missing, or more is to be done
  // --- operations (encoder_ops.cpp) ---
  void run_simple(const Op& op, const Shapes& before);
  void norm(const Op& op);
  void rope(const Op& op);
  void activation(const Op& op);
  void merge(const Op& op, const Shape& in);
  void pool_cells(const Op& op, const Shape& in);
  void emit(const Op& op);
  void add_sin_cos(const Op& op);
  // --- with weights (encoder_matmul.cpp): true when done ---
  [[nodiscard]] bool matmul(const Op& op);
  [[nodiscard]] bool matmul_transposed(const Op& op);
  [[nodiscard]] bool add_table(const Op& op);
  void add_table_rows(const Op& op, int64_t first, int64_t rows, const uint8_t* data);
  // --- attention (encoder_attention.cpp): true when done ---
  [[nodiscard]] bool attention(const Op& op);
  void divide_queries(const Op& op);
  void pack_head(const Op& op, int32_t head);
  void pack_run(const Op& op, const KeyRun& run, int64_t part, int64_t parts, float* aside,
                int32_t head);

  [[nodiscard]] float* at(Buf b) const { return buffers_[static_cast<size_t>(b)].as<float>(); }
  [[nodiscard]] Shape& shape(Buf b) { return shapes_[static_cast<size_t>(b)]; }
  [[nodiscard]] uint8_t* scratch(int thread) const {
    return scratch_.as<uint8_t>() + static_cast<size_t>(thread) * plan_.sizes.scratch_bytes;
  }
  // body(row) for every row, on all threads.
  template <class F>
  void for_rows(int64_t rows, const F& body) {
    options_.pool->parallel_for(rows, [&](int64_t row, int) { body(row); });
  }

  Program program_;
  media::Projector projector_;
  EncoderOptions options_;
  const kernels::Table* table_ = nullptr;
  std::unique_ptr<Weights> weights_;
  EncoderPlan plan_;
  uint32_t width_px_ = 0, height_px_ = 0;  // of the plan
  std::array<AlignedBuffer, kBuffers> buffers_;
  AlignedBuffer q8_, keys_, values_, scratch_;
  std::vector<Cell> cells_;  // of the patches, in their order
  AxisAngles angles_[2];     // of rows and columns
  AxisTaps taps_[2];         // of rows and columns
  std::vector<KeyRun> key_runs_;
  std::vector<QueryTile> tiles_;

  const media::Image* image_ = nullptr;
  std::span<float> out_;
  Shapes shapes_;
  size_t next_ = 0;    // operation
  uint32_t part_ = 0;  // unit or head of that operation
  bool running_ = false;
  Status status_;
};

}  // namespace sluice::vision

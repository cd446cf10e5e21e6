// The weights of an encoder while it runs: which are in memory, packing those that arrive, and
// multiplications over the units that are there. As for text models, a fixed subset is pinned and
// the rest streams; results are the same for any budget, since both layouts run one arithmetic.
#pragma once

#include <functional>

#include "base/thread_pool.h"
#include "vision/plan.h"

namespace sluice::vision {

// y = (add ? y : 0) + W x + bias for the rows of x.
struct Product {
  int32_t mat = -1;
  kernels::Acts x{};
  const float* bias = nullptr;
  bool add = false;
  float* y = nullptr;
  int64_t ldy = 0;
};

class Weights {
 public:
  Weights(const Program& program, const kernels::Table& table, ThreadPool& pool)
      : program_(program), table_(table), pool_(pool) {}

  // Allocates for a plan, or changes to another one; no read may be pending. Errors: kOutOfMemory.
  [[nodiscard]] Status adopt(residency::Plan plan);
  [[nodiscard]] bool open() const { return open_; }
  [[nodiscard]] residency::FillQueue& queue() { return residency_.requests().queue(); }
  // Collects what has arrived and requests more. `scratch`: of thread 0, with the other threads' at
  // `stride`.
  void poll(uint8_t* scratch, size_t stride);
  [[nodiscard]] bool idle();  // no read is pending
  [[nodiscard]] bool vectors_ready() const;
  [[nodiscard]] const float* vec(int32_t index) const;  // null for -1
  // kBadWeights, naming the tensor, once a value is not finite.
  [[nodiscard]] const Status& failure() const { return failure_; }

  // The units of a matrix.
  [[nodiscard]] uint32_t n_units(int32_t mat) const;
  // Whether unit n of a matrix is in memory; if not, it is requested next.
  [[nodiscard]] bool need(int32_t mat, uint32_t n);
  // Multiplies with unit n, which is in memory, and gives it back. `scratch` as for poll().
  void multiply(const Product& product, uint32_t n, uint8_t* scratch, size_t stride);
  // The rows of unit n of a plain matrix in file layout: f(first row, rows, bytes). Gives it back.
  using RowsOf = std::function<void(int64_t first, int64_t rows, const uint8_t* data)>;
  void read_rows(int32_t mat, uint32_t n, const RowsOf& f);

 private:
  [[nodiscard]] uint32_t unit_of(int32_t mat, uint32_t n) const;
  [[nodiscard]] bool settle(uint32_t unit, uint8_t* scratch);  // false: not finite
  void check(uint32_t unit, const Mat& mat, const uint8_t* rows, int64_t n_rows);
  void refuse(const std::string& name);

  const Program& program_;
  const kernels::Table& table_;
  ThreadPool& pool_;
  residency::Residency residency_;
  bool open_ = false;
  std::vector<uint8_t> checked_;  // by unit: its values are finite
  Status failure_;
};

}  // namespace sluice::vision

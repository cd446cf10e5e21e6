// Weights as a pass meets them: which unit is missing, products over the rows that are there, and
// direct reads, where the threads that multiply read the rows themselves. A row's result does not
// depend on how rows are grouped, so neither residency nor threads can change a bit of the output.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernels.h"
#include "session/engine.h"

namespace sluice::session {

// y rows get (add ? y : 0) + scale * (W x + bias) for the rows of `acts`.
struct Product {
  int32_t mat = -1;
  int32_t bias = -1;
  int64_t bias_at = 0;  // where in the vector it begins
  kernels::Acts acts{};
  float* y = nullptr;
  int64_t ldy = 0;
  float scale = 1;
  bool add = false;
  int64_t row0 = 0, row1 = INT64_MAX;  // of its rows these alone; natively, of plain units
};

class WeightStream {
 public:
  explicit WeightStream(Engine& engine);

  // Whether the unit is there; if not, reading goes on from it.
  [[nodiscard]] bool need(uint32_t unit);
  [[nodiscard]] bool need_vec(int32_t vec);  // -1 is there

  enum class Run : uint8_t { kDone, kBlocked, kReadFailed };
  // The products to come are new ones.
  void restart() {
    part_ = 0;
    unit_ = 0;
  }
  // Units of the matrix of `products` that are still to come, of products of the same matrix.
  void units_to_come(std::span<const Product> products, std::vector<uint32_t>* out) const;
  // Runs the products from where the last call stopped. kReadFailed: a direct read failed, there
  // will be no more of them, and what the batch has computed is incomplete.
  [[nodiscard]] Run run(std::span<const Product> products);

 private:
  // A run of rows of one matrix whose weights are there.
  struct Piece {
    int64_t row0 = 0;  // of its unit's rows the first
    kernels::MatmulArgs args;
    uint32_t unit = 0;
    uint8_t* ring = nullptr;  // of a direct read: where the threads' parts are
    int64_t row_bytes = 0;
    int64_t chunk = 0;  // rows of a task
    int64_t first_task = 0;
  };
  // Of a region, by all threads together.
  struct Tally {
    std::atomic<uint64_t> bytes{0}, ns{0};
    std::atomic<bool> failed{false};
  };
  static constexpr size_t kMaxPieces = 96;

  void gather(std::span<const Product> products);
  void run_pieces();
  [[nodiscard]] bool read_piece(const Piece& p, uint8_t* room, kernels::MatmulArgs* args);
  [[nodiscard]] bool settle_reads();

  Engine& engine_;
  int32_t part_ = 0;   // product that is next
  uint32_t unit_ = 0;  // of its units
  std::vector<Piece> pieces_;
  Tally reads_;
};

}  // namespace sluice::session

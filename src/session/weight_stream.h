// Streams weights into a forward pass. Tracks which unit is missing, multiplies the rows that have
// arrived, and lets compute threads read rows straight from the file (direct reads). A row's result
// does not depend on how rows are grouped, so neither residency nor threads change a bit of output.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernels.h"
#include "session/execution_context.h"

namespace sluice::session {

// A matrix multiplication: y = (add ? y : 0) + scale * (W x + bias) for the rows of `acts`.
struct Product {
  int32_t mat = -1;
  int32_t bias = -1;
  int64_t bias_at = 0;  // index of the first bias in the vector
  kernels::Acts acts{};
  float* y = nullptr;
  int64_t ldy = 0;
  float scale = 1, factor = 1;  // of the result, and of the weights alone
  bool add = false;
  int64_t row0 = 0, row1 = INT64_MAX;  // only these rows of W; plain units
};

enum class WeightRun : uint8_t { kDone, kBlocked, kReadFailed };

class WeightStream {
 public:
  explicit WeightStream(const ExecutionContext& context);

  // Whether the unit is in memory; if not, prefetch continues from it.
  [[nodiscard]] bool need(uint32_t unit);
  [[nodiscard]] bool need_vec(int32_t vec);  // true for -1

  // Call before a new list of products.
  void restart() {
    part_ = 0;
    unit_ = 0;
  }
  // Whether nothing has run since restart().
  [[nodiscard]] bool at_start() const { return part_ == 0 && unit_ == 0; }
  // Units that the rest of `products` still needs, except pinned ones that are ready.
  void units_to_come(std::span<const Product> products, std::vector<uint32_t>* out) const;
  // Runs the products from where the last call stopped. kReadFailed: a direct read failed; direct
  // reads are now off, and the batch's results are incomplete.
  [[nodiscard]] WeightRun run(std::span<const Product> products);

 private:
  // A run of rows of one matrix whose weights are in memory or can be read directly.
  struct Piece {
    int64_t row0 = 0;  // the first of its unit's rows
    kernels::MatmulArgs args;
    uint32_t unit = 0;
    uint8_t* ring = nullptr;  // direct reads: memory of the threads' parts
    int64_t row_bytes = 0;
    int64_t chunk = 0;  // rows per task
    int64_t first_task = 0;
  };
  // Counters of a parallel region, over all threads.
  struct Tally {
    std::atomic<uint64_t> bytes{0}, ns{0};
    std::atomic<bool> failed{false};
    uint64_t decompress_before = 0;
  };
  static constexpr size_t kMaxPieces = 96;

  void gather(std::span<const Product> products);
  void run_pieces();
  [[nodiscard]] bool read_piece(const Piece& p, uint8_t* room, kernels::MatmulArgs* args);
  [[nodiscard]] bool settle_reads();
  [[nodiscard]] uint64_t decompress_ns() const;

  ExecutionContext cx_;
  int32_t part_ = 0;   // index of the next product
  uint32_t unit_ = 0;  // index of its next unit
  std::vector<Piece> pieces_;
  Tally reads_;
};

}  // namespace sluice::session

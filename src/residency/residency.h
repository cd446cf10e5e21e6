// Implements the memory budget: which weights are in memory, where, and what is read next.
// A forward pass touches every unit in the same order, so LRU would get no hits once a model
// exceeds the budget. A fixed subset is pinned, spread evenly over the order. The rest streams
// through a ring of equal slots, prefetched in order and across the end of a pass. A slot goes to
// the unit needed soonest and is taken from the one needed latest (Belady's rule, exact for a
// cycle). Experts of a mixture are loaded on demand: they enter the order when a token is routed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned.h"
#include "base/status.h"
#include "residency/expert_values.h"
#include "residency/fill_requests.h"
#include "residency/pinned_memory.h"

namespace sluice::residency {

enum class MatrixKind : uint8_t {
  kDense,      // used once in every forward pass, in order
  kExpert,     // used when a token is routed to it
  kEmbedding,  // read row by row; resident only if the whole model fits
  kVector,     // a small tensor: always pinned, converted to f32 on arrival
};

struct MatrixSpec {
  MatrixKind kind = MatrixKind::kDense;
  uint32_t file = 0;
  uint64_t offset = 0;  // bytes
  int64_t rows = 0;
  int64_t row_bytes = 0;           // file layout
  int64_t packed_group_bytes = 0;  // of row_group rows, at least row_group * row_bytes; of a
                                   // vector: its size in f32
  bool plain = false;              // keeps the file layout, so that single rows can be multiplied
  // The layer, counted from 0, and the expert in it of a mixture's matrix; -1: none. An expert's
  // matrices follow one another, and so do a layer's experts.
  int32_t layer = -1, expert = -1;
};

struct Unit {
  int32_t matrix = 0;
  int64_t row0 = 0, rows = 0;
  MatrixKind kind = MatrixKind::kDense;
  uint32_t file = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;         // in the file
  uint64_t packed_bytes = 0;  // when pinned
  bool pinned = false;
  bool plain = false;
};

struct Plan {
  std::vector<Unit> units;           // by matrix in order of use, then by row
  std::vector<uint32_t> first_unit;  // of each matrix; one extra entry at the end
  std::vector<Expert> experts;       // of mixtures, in order of use
  int64_t row_group = 1;
  uint32_t n_slots = 0;
  uint64_t slot_bytes = 0;
  uint64_t pinned_bytes = 0;    // memory of the pinned units, without vectors
  uint64_t streamed_bytes = 0;  // file bytes read in every forward pass once the pins are loaded
  uint64_t total_bytes = 0;     // file bytes of all units, without an embedding read row by row
  bool embedding_resident = false;

  [[nodiscard]] uint64_t ring_bytes() const { return n_slots * slot_bytes; }
  // Units of a matrix: [first_unit_of(matrix), end_unit_of(matrix)).
  [[nodiscard]] uint32_t first_unit_of(int32_t matrix) const {
    return first_unit[static_cast<size_t>(matrix)];
  }
  [[nodiscard]] uint32_t end_unit_of(int32_t matrix) const {
    return first_unit[static_cast<size_t>(matrix) + 1];
  }
  // The expert that a matrix belongs to.
  [[nodiscard]] uint32_t expert_of(int32_t matrix) const;
};

// A ring of six such units stays in the CPU's cache between reading and multiplication. A ring of
// 24 MB made a tab a sixth slower. Smaller units cost more to request than to read.
inline constexpr uint64_t kUnitTarget = 1ull << 20;
// Bytes that a compute thread reads at a time in direct reads: they fit its own cache.
inline constexpr uint64_t kOwnTarget = 256ull << 10;
inline constexpr uint32_t kMinSlots = 2, kFewSlots = 4, kMaxSlots = 6;

// Cuts matrices (in order of use) into units and decides which are pinned within `budget` bytes.
// Vectors do not count against the budget. If the smallest ring does not fit, the plan has
// n_slots 0 and no units.
[[nodiscard]] Plan make_plan(std::span<const MatrixSpec> matrices, int64_t row_group,
                             uint64_t budget);
// The smallest budget for which make_plan succeeds.
[[nodiscard]] uint64_t minimum_budget(std::span<const MatrixSpec> matrices, int64_t row_group);

// Direct reads: compute threads read a streamed unit piece by piece, each into its part of the
// ring, and multiply what they have just read. When files come at memory speed (page cache), this
// is faster than waiting for the driver's thread, which also needs a core. While a device is the
// bottleneck, the driver reads ahead instead.
enum class DirectReads : uint8_t {
  kNone,
  // Once the fills of all streamed units have been marked kFillLocal; for experts, of those in
  // demand.
  kOnceLocal,
  kAlways,
};

inline constexpr uint32_t kNoUnit = UINT32_MAX;

// Counters for statistics.
struct ReadCounts {
  uint64_t fills = 0, filled_bytes = 0;
  uint64_t filled_at_first_use = 0;  // bytes that had arrived when the first unit had been used
  uint64_t own_bytes = 0;            // read by direct reads
  // Experts that a batch used and that were in memory, those that were not, and their bytes.
  uint64_t expert_hits = 0, expert_misses = 0, expert_missed_bytes = 0;
};

enum class UnitState : uint8_t { kAbsent, kLoading, kArrived, kReady };

class Residency {
 public:
  // Allocates pins and ring. Errors: kOutOfMemory.
  [[nodiscard]] Status init(Plan plan, DirectReads direct_reads = DirectReads::kNone,
                            int n_readers = 1);
  // Changes to another plan for the same matrices; no fill may be pending. Units that stay pinned
  // are not read again; everything else is released before anything is allocated.
  // Errors: kOutOfMemory; only another replan may be called after it.
  [[nodiscard]] Status replan(Plan plan);
  // Frees all pinned weights; call before replan(), which then has them read again.
  void drop_pins();

  [[nodiscard]] const Plan& plan() const { return plan_; }
  // The read requests, for the driver and for rows of embeddings.
  [[nodiscard]] FillRequests& requests() { return requests_; }
  [[nodiscard]] const ReadCounts& counts() const { return counts_; }

  [[nodiscard]] bool ready(uint32_t unit) const { return state_[unit] == UnitState::kReady; }
  [[nodiscard]] UnitState state(uint32_t unit) const { return state_[unit]; }
  // Whether a ready unit is in the packed layout; then its bytes.
  [[nodiscard]] bool packed(uint32_t unit) const { return packed_[unit] != 0; }
  [[nodiscard]] uint8_t* data(uint32_t unit) const;

  // Sets the unit that is needed now; prefetch continues from it.
  void set_cursor(uint32_t unit);
  // The unit under the cursor, for display.
  [[nodiscard]] uint32_t cursor_unit() const { return cycle_.empty() ? 0 : cycle_[cursor_]; }
  // Whether every pass reads this unit again, in order; and the next such unit.
  [[nodiscard]] bool streams_in_order(uint32_t unit) const;
  [[nodiscard]] uint32_t streamed_after(uint32_t unit) const;
  // The unit has been used in this pass: its slot may be reused.
  void advance_past(uint32_t unit);
  // Units needed now out of order, in order of use: experts, or the remaining units when a pass
  // skips some. Replaces the previous demand.
  void set_demand(std::span<const uint32_t> units);

  // A batch of `n_tokens` tokens uses these experts of one layer, ascending: counts hits and
  // misses, and pins missing experts in place of others that are worth less. Call before
  // set_demand().
  void use_experts(int32_t n_tokens, std::span<const ExpertUse> used);
  // From now on, the experts in memory stay the same: for measurements. Native builds only.
  void fix_experts() { fixed_experts_ = true; }

  // Collects completed fills and pushes as many requests as fit. True if at least one fill was
  // collected.
  bool poll();
  // Collects completed fills only. True if there was at least one.
  bool collect();

  // Pinned units that have arrived and must be packed in place: their file bytes are at the end of
  // the unit's memory. mark_arrived_ready makes them ready.
  [[nodiscard]] std::span<const uint32_t> arrived() const { return arrived_; }
  void mark_arrived_ready();

  // The ring's memory as n_readers parts of own_part() bytes for direct reads, valid until the next
  // poll(). Each part fits a row group of any streamed matrix. Null: no direct reads now.
  [[nodiscard]] uint8_t* borrow_ring();
  [[nodiscard]] uint64_t own_part() const { return own_part_; }
  void forbid_direct_reads() { direct_reads_ = DirectReads::kNone; }
  // When direct reads would wait for a device: takes pending requests of local units, which the
  // caller then serves beside the driver and finishes. Returns how many were written to `out`.
  [[nodiscard]] size_t take_requests(std::span<uint32_t> out);
  // Counts bytes of a unit that a direct read has read.
  void note_own_read(uint64_t bytes) {
    ++counts_.fills;
    counts_.filled_bytes += bytes;
    counts_.own_bytes += bytes;
  }

  [[nodiscard]] uint32_t pins_pending() const { return pins_absent_; }

 private:
  [[nodiscard]] Status adopt(Plan plan);
  // The ready pinned unit with exactly these rows; -1: none.
  [[nodiscard]] int32_t held_unit(const Unit& wanted) const;
  [[nodiscard]] bool reads_own() const;
  void release_slot(size_t slot);
  // How many other units are needed before this one: demanded experts, then the cycle, then
  // experts not in demand, most recently used first.
  [[nodiscard]] uint64_t distance(uint32_t unit) const;
  // A free slot, or one whose unit is needed later than `wanted_distance`; -1: none.
  [[nodiscard]] int32_t claim_slot(uint64_t wanted_distance);
  // Whether all units of an expert are pinned and none is being read.
  [[nodiscard]] bool may_leave(const Expert& expert) const;
  // The pinned expert of the form of `wanted` that is worth least, among those of a layer that are
  // not used; -1: none.
  [[nodiscard]] int32_t least_worth(uint32_t layer, const Expert& wanted,
                                    std::span<const ExpertUse> used) const;
  void admit(uint32_t expert, int32_t n_tokens, std::span<const ExpertUse> used);
  // Pins the units of `to` in the memory of those of `from`.
  void take_over(const Expert& from, const Expert& to);
  // Lets experts that are in memory stay pinned under another plan.
  void keep_cached(Plan& plan) const;
  // False if the request could not be pushed: no slot, or the queue is full.
  bool request_unit(uint32_t unit, uint64_t wanted_distance);

  Plan plan_;
  FillRequests requests_;
  ReadCounts counts_;
  std::vector<UnitState> state_;
  std::vector<uint8_t> packed_;
  std::vector<int32_t> slot_of_;       // by unit
  std::vector<PinnedUnit> pins_;       // by unit
  std::vector<int32_t> unit_in_slot_;  // -1: free
  AlignedBuffer ring_;
  std::vector<uint32_t> cycle_;  // units that every pass uses, in order
  std::vector<uint32_t> place_;  // of a unit in cycle_; kNoPlace for experts
  std::vector<uint32_t> demand_;
  std::vector<uint64_t> last_used_;  // by unit, for experts
  ExpertValues values_;
  bool fixed_experts_ = false;
  uint32_t other_layer_ = 0;  // whose experts are compared next
  std::vector<uint32_t> arrived_;
  uint64_t clock_ = 0;
  uint32_t cursor_ = 0;  // place in cycle_
  uint32_t pins_absent_ = 0;
  DirectReads direct_reads_ = DirectReads::kNone;
  uint64_t n_readers_ = 1;
  uint64_t own_part_ = 0;       // 0: the ring is too small for so many readers
  std::vector<uint8_t> local_;  // by unit: the last fill was marked kFillLocal
  uint32_t streamed_afar_ = 0;  // streamed kDense units that are not local
};

}  // namespace sluice::residency

// Runs the plan: slots, pins and read requests.
#include "residency/residency.h"

#include <algorithm>

namespace sluice::residency {
namespace {

constexpr uint32_t kNoPlace = UINT32_MAX;
constexpr uint32_t kReservedForRows = 16;  // queue entries that units leave free for rows

// The bytes of one reader's part of the ring; 0: the ring is too small for so many readers.
uint64_t part_of_ring(const Plan& plan, uint64_t n_readers) {
  uint64_t widest = 1;
  for (const Unit& u : plan.units) {
    const bool streamed = u.kind == MatrixKind::kDense || u.kind == MatrixKind::kExpert;
    if (u.pinned || !streamed) continue;
    const uint64_t rows = static_cast<uint64_t>(std::min(u.rows, plan.row_group));
    widest = std::max(widest, u.bytes / static_cast<uint64_t>(u.rows) * rows);
  }
  const uint64_t share = plan.ring_bytes() / n_readers / 64 * 64;
  if (share < widest) return 0;
  return std::max<uint64_t>(round_up_to_line(widest), std::min(share, kOwnTarget));
}

}  // namespace

Status Residency::init(Plan plan, DirectReads direct_reads, int n_readers) {
  requests_.init();
  direct_reads_ = direct_reads;
  n_readers_ = static_cast<uint64_t>(n_readers);
  if (direct_reads == DirectReads::kAlways) requests_.queue().rate = kMaxSpeed;
  const size_t n = plan.units.size();
  state_.assign(n, UnitState::kAbsent);
  packed_.assign(n, 0);
  pins_.resize(n);
  return adopt(std::move(plan));
}

int32_t Residency::held_unit(const Unit& wanted) const {
  const uint32_t end = plan_.end_unit_of(wanted.matrix);
  for (uint32_t i = plan_.first_unit_of(wanted.matrix); i < end; ++i) {
    const Unit& u = plan_.units[i];
    if (u.row0 != wanted.row0 || u.rows != wanted.rows) continue;
    return u.pinned && state_[i] == UnitState::kReady ? static_cast<int32_t>(i) : -1;
  }
  return -1;
}

void Residency::drop_pins() {
  std::fill(state_.begin(), state_.end(), UnitState::kAbsent);
  for (PinnedUnit& unit : pins_) unit = PinnedUnit();
}

Status Residency::replan(Plan plan) {
  keep_cached(plan);
  const size_t n = plan.units.size();
  std::vector<UnitState> state(n, UnitState::kAbsent);
  std::vector<uint8_t> packed(n, 0);
  std::vector<PinnedUnit> pins(n);
  for (size_t i = 0; i < n; ++i) {
    const int32_t held = plan.units[i].pinned ? held_unit(plan.units[i]) : -1;
    if (held < 0) continue;
    state[i] = UnitState::kReady;
    packed[i] = packed_[static_cast<size_t>(held)];
    pins[i].swap(pins_[static_cast<size_t>(held)]);
  }
  state_ = std::move(state);
  packed_ = std::move(packed);
  pins_ = std::move(pins);
  return adopt(std::move(plan));
}

// Allocates the plan's memory except for units that state_ already marks as present.
Status Residency::adopt(Plan plan) {
  plan_ = std::move(plan);
  ring_ = AlignedBuffer();
  values_.init(plan_.experts);
  const size_t n = plan_.units.size();
  slot_of_.assign(n, -1);
  local_.assign(n, direct_reads_ == DirectReads::kAlways);
  streamed_afar_ = 0;
  last_used_.assign(n, 0);
  place_.assign(n, kNoPlace);
  arrived_.clear();
  arrived_.reserve(n);
  cycle_.clear();
  demand_.clear();
  cursor_ = 0;
  pins_absent_ = 0;
  std::vector<uint64_t> wanted(n, 0);
  for (uint32_t i = 0; i < n; ++i) {
    const Unit& u = plan_.units[i];
    const bool embedding_by_row = u.kind == MatrixKind::kEmbedding && !u.pinned;
    if (u.kind != MatrixKind::kExpert && !embedding_by_row) {
      place_[i] = static_cast<uint32_t>(cycle_.size());
      cycle_.push_back(i);
    }
    if (u.kind == MatrixKind::kDense && !u.pinned && local_[i] == 0) ++streamed_afar_;
    if (u.pinned && state_[i] == UnitState::kAbsent) {
      wanted[i] = std::max(u.packed_bytes, u.bytes);
      ++pins_absent_;
    }
  }
  SLUICE_RETURN_IF_ERROR(allocate_units(wanted, pins_));
  unit_in_slot_.assign(plan_.n_slots, -1);
  own_part_ = part_of_ring(plan_, n_readers_);
  return ring_.allocate(plan_.ring_bytes());
}

uint8_t* Residency::data(uint32_t unit) const {
  if (plan_.units[unit].pinned) return pins_[unit].data();
  return ring_.as<uint8_t>() + static_cast<uint64_t>(slot_of_[unit]) * plan_.slot_bytes;
}

void Residency::set_cursor(uint32_t unit) {
  if (plan_.units[unit].kind != MatrixKind::kExpert) cursor_ = place_[unit];
}

void Residency::advance_past(uint32_t unit) {
  if (counts_.filled_at_first_use == 0) counts_.filled_at_first_use = counts_.filled_bytes;
  const auto it = std::find(demand_.begin(), demand_.end(), unit);
  if (it != demand_.end()) demand_.erase(demand_.begin(), it + 1);
  if (plan_.units[unit].kind == MatrixKind::kExpert) {
    last_used_[unit] = ++clock_;
  } else {
    cursor_ = static_cast<uint32_t>((place_[unit] + 1) % cycle_.size());
  }
}

bool Residency::streams_in_order(uint32_t unit) const {
  return unit < place_.size() && place_[unit] != kNoPlace && !plan_.units[unit].pinned;
}

uint32_t Residency::streamed_after(uint32_t unit) const {
  for (size_t at = place_[unit];;) {
    at = (at + 1) % cycle_.size();
    if (!plan_.units[cycle_[at]].pinned) return cycle_[at];
  }
}

void Residency::set_demand(std::span<const uint32_t> units) {
  demand_.assign(units.begin(), units.end());
}

uint64_t Residency::distance(uint32_t unit) const {
  const auto it = std::find(demand_.begin(), demand_.end(), unit);
  if (it != demand_.end()) return static_cast<uint64_t>(it - demand_.begin());
  const uint64_t n = cycle_.size();
  if (plan_.units[unit].kind != MatrixKind::kExpert) {
    return demand_.size() + (place_[unit] + n - cursor_) % n;
  }
  return demand_.size() + n + (clock_ - last_used_[unit]);
}

bool Residency::collect() {
  return requests_.collect([this](int32_t id, uint32_t state, uint32_t bytes) {
    const uint32_t unit = static_cast<uint32_t>(id);
    if (state == kFillFailed && plan_.units[unit].pinned) {
      state_[unit] = UnitState::kAbsent;
      return;
    }
    if (state == kFillFailed) return release_slot(static_cast<size_t>(slot_of_[unit]));
    ++counts_.fills;
    counts_.filled_bytes += bytes;
    if (id < 0) return;
    const MatrixKind kind = plan_.units[unit].kind;
    if (plan_.units[unit].pinned) {
      state_[unit] = UnitState::kArrived;
      arrived_.push_back(unit);
      --pins_absent_;
    } else {
      state_[unit] = UnitState::kReady;
      const uint8_t local = state == kFillLocal || direct_reads_ == DirectReads::kAlways;
      if (kind == MatrixKind::kDense) streamed_afar_ += local_[unit] - local;
      local_[unit] = local;
    }
    if (kind == MatrixKind::kExpert && state == kFillLocal) local_[unit] = 1;
  });
}

int32_t Residency::claim_slot(uint64_t wanted_distance) {
  int32_t best = -1;
  uint64_t farthest = wanted_distance;
  for (size_t s = 0; s < unit_in_slot_.size(); ++s) {
    const int32_t unit = unit_in_slot_[s];
    if (unit < 0) return static_cast<int32_t>(s);
    if (state_[static_cast<uint32_t>(unit)] != UnitState::kReady) continue;  // being filled
    const uint64_t d = distance(static_cast<uint32_t>(unit));
    if (d > farthest) {
      farthest = d;
      best = static_cast<int32_t>(s);
    }
  }
  return best;
}

void Residency::release_slot(size_t slot) {
  const int32_t holder = unit_in_slot_[slot];
  if (holder < 0) return;
  state_[static_cast<uint32_t>(holder)] = UnitState::kAbsent;
  slot_of_[static_cast<uint32_t>(holder)] = -1;
  unit_in_slot_[slot] = -1;
}

bool Residency::reads_own() const {
  const auto near = [this](uint32_t unit) { return plan_.units[unit].pinned || local_[unit] != 0; };
  return direct_reads_ != DirectReads::kNone && streamed_afar_ == 0 && own_part_ > 0 &&
         requests_.queue().rate.load(std::memory_order_relaxed) > kMemorySpeed &&
         std::all_of(demand_.begin(), demand_.end(), near);
}

size_t Residency::take_requests(std::span<uint32_t> out) {
  if (direct_reads_ != DirectReads::kOnceLocal) return 0;
  return requests_.take(out,
                        [this](int32_t unit) { return local_[static_cast<size_t>(unit)] != 0; });
}

uint8_t* Residency::borrow_ring() {
  if (!reads_own()) return nullptr;
  for (const int32_t unit : unit_in_slot_) {
    if (unit >= 0 && state_[static_cast<uint32_t>(unit)] != UnitState::kReady) return nullptr;
  }
  for (size_t slot = 0; slot < unit_in_slot_.size(); ++slot) release_slot(slot);
  return ring_.as<uint8_t>();
}

bool Residency::request_unit(uint32_t unit, uint64_t wanted_distance) {
  const Unit& u = plan_.units[unit];
  if (!requests_.has_room(kReservedForRows)) return false;
  uint8_t* dst = nullptr;
  if (u.pinned) {
    dst = pins_[unit].data() + (u.packed_bytes - u.bytes);
  } else {
    const int32_t slot = claim_slot(wanted_distance);
    if (slot < 0) return false;
    int32_t& holder = unit_in_slot_[static_cast<size_t>(slot)];
    release_slot(static_cast<size_t>(slot));
    holder = static_cast<int32_t>(unit);
    slot_of_[unit] = slot;
    dst = data(unit);
  }
  state_[unit] = UnitState::kLoading;
  requests_.push(u.file, u.offset, static_cast<uint32_t>(u.bytes), dst, static_cast<int32_t>(unit));
  return true;
}

bool Residency::poll() {
  const bool any = collect();
  bool ring_full = unit_in_slot_.empty() || reads_own();  // direct reads use the ring instead
  for (uint32_t i = 0; i < demand_.size(); ++i) {
    const uint32_t unit = demand_[i];
    if (state_[unit] != UnitState::kAbsent || (ring_full && !plan_.units[unit].pinned)) continue;
    if (!requests_.has_room(kReservedForRows)) break;
    const bool requested = request_unit(unit, i);
    if (!plan_.units[unit].pinned) ring_full = !requested;  // pinned units behind it need no slot
  }
  if (pins_absent_ == 0 && ring_full) return any;
  const uint32_t n = static_cast<uint32_t>(cycle_.size());
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t unit = cycle_[(cursor_ + i) % n];
    if (state_[unit] != UnitState::kAbsent) continue;
    if (!requests_.has_room(kReservedForRows)) break;
    if (!plan_.units[unit].pinned) {
      if (ring_full) continue;
      ring_full = !request_unit(unit, demand_.size() + i);
      if (ring_full && pins_absent_ == 0) break;
    } else if (!request_unit(unit, 0)) {
      break;
    }
  }
  return any;
}

void Residency::mark_arrived_ready() {
  for (const uint32_t unit : arrived_) {
    state_[unit] = UnitState::kReady;
    const Unit& u = plan_.units[unit];
    packed_[unit] = u.kind != MatrixKind::kVector && !u.plain;
  }
  arrived_.clear();
}

}  // namespace sluice::residency

// Residency with a driver that serves requests in random order, delays some and fails others. Every
// unit reported as ready has its own bytes, and no two share memory.
#include "residency/residency.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace sluice::residency {
namespace {

constexpr int64_t kRowGroup = 4;
constexpr int kExperts = 4;  // per layer

uint8_t file_byte(uint32_t file, uint64_t offset) {
  return static_cast<uint8_t>((offset * 2654435761u + file * 97u) >> 7);
}

bool holds(const uint8_t* at, uint32_t file, uint64_t offset, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; ++i) {
    if (at[i] != file_byte(file, offset + i)) return false;
  }
  return true;
}

std::vector<MatrixSpec> small_model(std::mt19937& random) {
  std::vector<MatrixSpec> out;
  uint64_t offset = 0;
  const auto place = [&](MatrixSpec s) {
    s.file = random() % 2;
    s.offset = offset;
    offset += static_cast<uint64_t>(s.rows * s.row_bytes);
    out.push_back(s);
  };
  const auto matrix = [&](MatrixKind kind, int64_t rows) {
    MatrixSpec s;
    s.kind = kind;
    s.rows = rows;
    s.row_bytes = 16 + static_cast<int64_t>(random() % 100);
    s.packed_group_bytes = kRowGroup * s.row_bytes + static_cast<int64_t>(random() % 32);
    if (kind == MatrixKind::kVector) s.packed_group_bytes = 2 * s.row_bytes;
    return s;
  };
  const auto add = [&](MatrixKind kind, int64_t rows) { place(matrix(kind, rows)); };
  MatrixSpec up, down;
  for (int layer = 0; layer < 4; ++layer) {
    add(MatrixKind::kVector, 1);
    add(MatrixKind::kDense, 10 + static_cast<int64_t>(random() % 60));
    if (layer % 2 == 0) {  // experts of two layers have the same sizes
      up = matrix(MatrixKind::kExpert, 8 + static_cast<int64_t>(random() % 20));
      down = matrix(MatrixKind::kExpert, 8 + static_cast<int64_t>(random() % 20));
    }
    for (int e = 0; e < kExperts; ++e) {
      up.layer = down.layer = layer;
      up.expert = down.expert = e;
      place(up);
      place(down);
    }
  }
  add(MatrixKind::kEmbedding, 50);
  return out;
}

class Rig {
 public:
  Rig(uint32_t seed, DirectReads direct_reads)
      : random_(seed), matrices_(small_model(random_)), local_(direct_reads != DirectReads::kNone) {
    EXPECT_TRUE(residency_.init(plan(), direct_reads, 2).ok());
  }

  // A random budget between the minimum and everything.
  Plan plan() {
    const uint64_t least = minimum_budget(matrices_, kRowGroup);
    const uint64_t budget = least + random_() % (random_() % 4 == 0 ? 40000 : 8000);
    return make_plan(matrices_, kRowGroup, budget);
  }

  // Serves some pending requests, in any order.
  void drive(bool all = false) {
    FillQueue& q = residency_.requests().queue();
    std::vector<uint32_t> pending;
    for (uint32_t n = 0; n < kFillCapacity; ++n) {
      if (q.ring[n].state == kFillPending) pending.push_back(n);
    }
    std::shuffle(pending.begin(), pending.end(), random_);
    for (const uint32_t n : pending) {
      if (!all && random_() % 3 == 0) continue;
      fill(q.ring[n]);
      q.ring[n].state = local_ ? kFillLocal : kFillDone;
      q.completed.fetch_add(1);
    }
  }

  // Compute threads take requests too, and sometimes fail.
  void help(bool may_fail) {
    uint32_t taken[8];
    const size_t n = residency_.take_requests(taken);
    for (size_t i = 0; i < n; ++i) {
      FillRequest& r = residency_.requests().queue().ring[taken[i] % kFillCapacity];
      const bool good = !may_fail || random_() % 2 == 0;
      if (good) fill(r);
      if (!good) residency_.forbid_direct_reads();
      residency_.requests().finish(taken[i], good);
    }
  }

  bool wait_for(uint32_t unit) {
    for (int i = 0; i < 2000 && !residency_.ready(unit); ++i) {
      residency_.poll();
      expect_apart();
      drive();
      residency_.collect();
      check_arrived();
    }
    return residency_.ready(unit);
  }

  void check_arrived() {
    for (const uint32_t unit : residency_.arrived()) expect_bytes(unit);
    residency_.mark_arrived_ready();
  }

  void expect_bytes(uint32_t unit) {
    const Unit& u = residency_.plan().units[unit];
    const uint64_t skip = u.pinned ? u.packed_bytes - u.bytes : 0;
    EXPECT_TRUE(holds(residency_.data(unit) + skip, u.file, u.offset, u.bytes)) << unit;
  }

  // No two units in memory or being loaded overlap, nor do two requests.
  void expect_apart() {
    std::vector<std::pair<uint64_t, uint64_t>> spans, requests;
    const Plan& p = residency_.plan();
    for (uint32_t u = 0; u < p.units.size(); ++u) {
      if (residency_.state(u) == UnitState::kAbsent) continue;
      const uint64_t at = reinterpret_cast<uintptr_t>(residency_.data(u));
      const uint64_t bytes = p.units[u].pinned ? p.units[u].packed_bytes : p.slot_bytes;
      spans.emplace_back(at, at + bytes);
    }
    for (const FillRequest& r : residency_.requests().queue().ring) {
      if (r.state != kFillFree) requests.emplace_back(r.dst, r.dst + r.length);
    }
    for (auto* list : {&spans, &requests}) {
      std::sort(list->begin(), list->end());
      for (size_t i = 1; i < list->size(); ++i) {
        EXPECT_LE((*list)[i - 1].second, (*list)[i].first);
      }
    }
  }

  // One pass in order; experts of a layer by demand, and a few rows of the embedding.
  void pass(int give_up_after) {
    const Plan& p = residency_.plan();
    for (uint32_t unit = 0; unit < p.units.size(); ++unit) {
      if (give_up_after-- == 0) return;
      const MatrixKind kind = p.units[unit].kind;
      if (kind == MatrixKind::kEmbedding) break;
      if (kind == MatrixKind::kExpert) {
        const int32_t matrix = p.units[unit].matrix;
        const uint32_t first = residency_.plan().expert_of(matrix);
        if (!experts(first)) return;
        unit = p.experts[first + kExperts - 1].end_unit - 1;
        continue;
      }
      residency_.set_cursor(unit);
      ASSERT_TRUE(wait_for(unit)) << unit;
      expect_bytes(unit);
      residency_.advance_past(unit);
    }
    rows();
  }

  // Some experts of a layer, of which `first` is the first.
  bool experts(uint32_t first) {
    const Plan& p = residency_.plan();
    std::vector<ExpertUse> used;
    std::vector<uint32_t> demand;
    for (uint32_t e = first; e < first + kExperts; ++e) {
      if (random_() % 2 != 0) continue;
      used.push_back({e, 1});
      for (uint32_t u = p.experts[e].first_unit; u < p.experts[e].end_unit; ++u) {
        demand.push_back(u);
      }
    }
    residency_.use_experts(1, used);
    residency_.set_demand(demand);
    for (const uint32_t unit : demand) {
      EXPECT_TRUE(wait_for(unit)) << unit;
      if (testing::Test::HasFailure()) return false;
      expect_bytes(unit);
      residency_.advance_past(unit);
    }
    return true;
  }

  void rows() {
    uint8_t out[4][128];
    const MatrixSpec& e = matrices_.back();
    int asked = 0;
    for (int i = 0; i < 4; ++i) {
      const uint64_t offset = e.offset + static_cast<uint64_t>(e.row_bytes) * (random_() % 50);
      offsets_[i] = offset;
      asked += residency_.requests().request_row(i % 2, e.file, offset,
                                                 static_cast<uint32_t>(e.row_bytes), out[i]);
    }
    settle();
    EXPECT_EQ(residency_.requests().rows_under_way(0) + residency_.requests().rows_under_way(1),
              0u);
    for (int i = 0; i < asked; ++i) {
      EXPECT_TRUE(holds(out[i], e.file, offsets_[i], static_cast<uint64_t>(e.row_bytes)));
    }
  }

  // Drives until no fill is in progress.
  void settle() {
    drive(true);
    residency_.collect();
    check_arrived();
    EXPECT_EQ(residency_.requests().under_way(), 0u);
  }

  void replan() {
    settle();
    std::vector<std::pair<uint64_t, const uint8_t*>> held;
    for (uint32_t u = 0; u < residency_.plan().units.size(); ++u) {
      const Unit& unit = residency_.plan().units[u];
      if (unit.pinned && residency_.ready(u)) held.emplace_back(unit.offset, residency_.data(u));
    }
    ASSERT_TRUE(residency_.replan(plan()).ok());
    for (uint32_t u = 0; u < residency_.plan().units.size(); ++u) {
      if (!residency_.ready(u)) continue;
      EXPECT_TRUE(residency_.plan().units[u].pinned);
      expect_bytes(u);
    }
    expect_apart();
  }

  Residency& residency() { return residency_; }
  std::mt19937& random() { return random_; }
  [[nodiscard]] const std::vector<MatrixSpec>& matrices() const { return matrices_; }

 private:
  static void fill(FillRequest& r) {
    uint8_t* dst = reinterpret_cast<uint8_t*>(static_cast<uintptr_t>(r.dst));
    for (uint32_t i = 0; i < r.length; ++i) dst[i] = file_byte(r.file, r.offset + i);
  }

  std::mt19937 random_;
  std::vector<MatrixSpec> matrices_;
  bool local_;
  uint64_t offsets_[4] = {};
  Residency residency_;
};

TEST(Residency, ReadyUnitsHaveTheirOwnBytes) {
  for (uint32_t seed = 0; seed < 60 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Rig rig(seed, DirectReads::kNone);
    for (int i = 0; i < 8; ++i) {
      rig.pass(rig.random()() % 3 == 0 ? static_cast<int>(rig.random()() % 20) : -1);
      if (i % 3 == 2) rig.replan();
    }
  }
}

// An abandoned pass leaves a demand behind; the next one replaces it and is served.
TEST(Residency, AnAbandonedDemandBlocksNothing) {
  for (uint32_t seed = 0; seed < 30 && !HasFailure(); ++seed) {
    Rig rig(seed, DirectReads::kNone);
    std::vector<uint32_t> experts;
    for (uint32_t u = 0; u < rig.residency().plan().units.size(); ++u) {
      if (rig.residency().plan().units[u].kind == MatrixKind::kExpert) experts.push_back(u);
    }
    rig.residency().set_demand(experts);
    rig.residency().poll();
    rig.drive();
    rig.residency().set_demand({});
    rig.pass(-1);
  }
}

TEST(Residency, FailedRequestsAreRepeated) {
  for (uint32_t seed = 0; seed < 30 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Rig rig(seed, DirectReads::kOnceLocal);
    rig.pass(-1);
    rig.residency().poll();
    rig.help(true);  // after a failure there are no more direct reads
    rig.expect_apart();
    rig.pass(-1);
  }
}

TEST(Residency, TheRingIsLentOnlyWhileNothingIsReadIntoIt) {
  int lent = 0;
  for (uint32_t seed = 0; seed < 60 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Rig rig(seed, DirectReads::kOnceLocal);
    Residency& r = rig.residency();
    EXPECT_EQ(r.borrow_ring(), nullptr) << "no unit is known to be local";
    rig.pass(-1);
    for (int i = 0; i < 40; ++i) r.requests().note_rate(2ull * kMemorySpeed << 10, 1000 << 10);
    bool loading = false, streams = false;
    for (uint32_t u = 0; u < r.plan().units.size(); ++u) {
      const bool streamed = !r.plan().units[u].pinned;
      streams |= streamed;
      loading |= streamed && r.state(u) == UnitState::kLoading;
    }
    r.set_demand({});
    uint8_t* ring = r.borrow_ring();
    if (loading) {
      EXPECT_EQ(ring, nullptr);
    }
    if (ring == nullptr) continue;
    ++lent;
    EXPECT_TRUE(streams);
    EXPECT_LE(2 * r.own_part(), r.plan().ring_bytes());
    for (uint32_t u = 0; u < r.plan().units.size(); ++u) {
      const Unit& unit = r.plan().units[u];
      if (unit.pinned || unit.kind == MatrixKind::kEmbedding) continue;
      EXPECT_FALSE(r.ready(u)) << "its slot is lent";
      const uint64_t group = unit.bytes / static_cast<uint64_t>(unit.rows) *
                             static_cast<uint64_t>(std::min(unit.rows, kRowGroup));
      EXPECT_LE(group, r.own_part());
    }
    std::fill_n(ring, 2 * r.own_part(), uint8_t{0xee});
    r.forbid_direct_reads();
    EXPECT_EQ(r.borrow_ring(), nullptr);
    rig.pass(-1);
  }
  EXPECT_GT(lent, 5);
}

}  // namespace
}  // namespace sluice::residency

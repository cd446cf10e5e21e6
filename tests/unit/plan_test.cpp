// The residency planner over random matrices and budgets: invariants of all plans.
#include <gtest/gtest.h>

#include <random>

#include "../extent.h"
#include "residency/residency.h"

namespace sluice::residency {
namespace {

struct Model {
  std::vector<MatrixSpec> matrices;
  int64_t row_group = 1;
};

class Dice {
 public:
  explicit Dice(uint32_t seed) : engine_(seed) {}
  int64_t roll(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(engine_);
  }

 private:
  std::mt19937 engine_;
};

Model random_model(Dice& dice) {
  Model m;
  m.row_group = int64_t{1} << dice.roll(0, 4);
  uint64_t offset = static_cast<uint64_t>(dice.roll(0, 1000));
  const int64_t n = dice.roll(1, 14);
  const int64_t widest = dice.roll(1, 5000);
  for (int64_t i = 0; i < n; ++i) {
    MatrixSpec s;
    s.kind = static_cast<MatrixKind>(dice.roll(0, 3));
    if (s.kind == MatrixKind::kEmbedding && i > 0) s.kind = MatrixKind::kDense;
    s.file = static_cast<uint32_t>(dice.roll(0, 2));
    s.offset = offset;
    s.rows = s.kind == MatrixKind::kVector ? 1 : dice.roll(1, dice.roll(1, 3000));
    s.row_bytes = dice.roll(1, widest);
    s.packed_group_bytes = s.kind == MatrixKind::kVector
                               ? 2 * s.row_bytes
                               : m.row_group * s.row_bytes + dice.roll(0, 64);
    offset += static_cast<uint64_t>(s.rows * s.row_bytes);
    m.matrices.push_back(s);
  }
  return m;
}

// Every row is in exactly one unit, in order, at its offset in the file.
void expect_whole(const Model& m, const Plan& plan) {
  ASSERT_EQ(plan.first_unit.size(), m.matrices.size() + 1);
  ASSERT_EQ(plan.first_unit.back(), plan.units.size());
  for (size_t i = 0; i < m.matrices.size(); ++i) {
    const MatrixSpec& s = m.matrices[i];
    int64_t row = 0;
    for (uint32_t u = plan.first_unit[i]; u < plan.first_unit[i + 1]; ++u) {
      const Unit& unit = plan.units[u];
      EXPECT_EQ(unit.matrix, static_cast<int32_t>(i));
      EXPECT_EQ(unit.kind, s.kind);
      EXPECT_EQ(unit.file, s.file);
      EXPECT_EQ(unit.row0, row);
      EXPECT_EQ(unit.row0 % m.row_group, 0) << "a group of rows is cut";
      EXPECT_GT(unit.rows, 0);
      EXPECT_EQ(unit.offset, s.offset + static_cast<uint64_t>(row * s.row_bytes));
      EXPECT_EQ(unit.bytes, static_cast<uint64_t>(unit.rows * s.row_bytes));
      EXPECT_GE(unit.packed_bytes, unit.bytes);
      row += unit.rows;
    }
    EXPECT_EQ(row, s.rows);
  }
}

void expect_within(const Plan& plan, uint64_t budget) {
  uint64_t pinned = 0, streamed = 0;
  for (const Unit& u : plan.units) {
    if (u.kind == MatrixKind::kVector) {
      EXPECT_TRUE(u.pinned);
    } else if (u.pinned) {
      pinned += u.packed_bytes;
    }
    if (u.kind == MatrixKind::kEmbedding) {
      EXPECT_EQ(u.pinned, plan.embedding_resident);
    } else if (!u.pinned) {
      streamed += u.bytes;
      EXPECT_LE(u.bytes, plan.slot_bytes);
    }
  }
  EXPECT_EQ(plan.pinned_bytes, pinned);
  EXPECT_EQ(plan.streamed_bytes, streamed);
  EXPECT_LE(pinned + plan.ring_bytes(), budget);
  EXPECT_TRUE(plan.n_slots == 0 ? streamed == 0 : plan.n_slots >= kMinSlots);
  EXPECT_EQ(plan.slot_bytes % kAlignment, 0u);
  if (plan.embedding_resident) {
    EXPECT_EQ(streamed, 0u);
  }
}

TEST(Plan, HoldsForRandomModelsAndBudgets) {
  Dice dice(1);
  for (int round = 0; round < test::extent(500, 2000) && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    const Model m = random_model(dice);
    uint64_t all = 0;
    for (const MatrixSpec& s : m.matrices) {
      all += static_cast<uint64_t>((s.rows + m.row_group) * (s.packed_group_bytes + 1));
    }
    const uint64_t least = minimum_budget(m.matrices, m.row_group);
    for (int i = 0; i < 6; ++i) {
      const uint64_t budget =
          i == 0
              ? least
              : least + static_cast<uint64_t>(dice.roll(0, static_cast<int64_t>(all >> (2 * i))));
      const Plan plan = make_plan(m.matrices, m.row_group, budget);
      ASSERT_FALSE(plan.units.empty()) << budget << " of at least " << least;
      expect_whole(m, plan);
      expect_within(plan, budget);
    }
    const Plan everything = make_plan(m.matrices, m.row_group, UINT64_MAX / 4);
    expect_whole(m, everything);
    EXPECT_EQ(everything.n_slots, 0u);
    EXPECT_EQ(everything.streamed_bytes, 0u);
  }
}

TEST(Plan, OneByteBelowTheMinimumIsAnError) {
  Dice dice(2);
  int tried = 0;
  for (int round = 0; round < 500; ++round) {
    const Model m = random_model(dice);
    const uint64_t least = minimum_budget(m.matrices, m.row_group);
    if (least == 0) continue;
    ++tried;
    const Plan plan = make_plan(m.matrices, m.row_group, least - 1);
    EXPECT_TRUE(plan.units.empty() && plan.n_slots == 0) << round;
  }
  EXPECT_GT(tried, 250);
}

// Many equal layers: a larger budget never reads more per forward pass, and reads are spread over
// the pass, not bunched at its end.
TEST(Plan, MoreBudgetReadsLessAndEvenly) {
  Model m;
  m.row_group = 8;
  for (int i = 0; i < 40; ++i) {
    MatrixSpec s;
    s.offset = static_cast<uint64_t>(i) << 22;
    s.rows = 1024;
    s.row_bytes = 4096;
    s.packed_group_bytes = 8 * 4096;
    m.matrices.push_back(s);
  }
  constexpr uint64_t kAll = uint64_t{40} << 22;
  uint64_t before = UINT64_MAX;
  for (uint64_t budget = kAll / 16; budget <= kAll; budget += kAll / 16) {
    const Plan plan = make_plan(m.matrices, m.row_group, budget);
    EXPECT_LE(plan.streamed_bytes, before) << budget;
    before = plan.streamed_bytes;
    uint64_t first = 0;
    for (const Unit& u : plan.units) {
      if (!u.pinned && u.matrix < 20) first += u.bytes;
    }
    EXPECT_NEAR(static_cast<double>(first), static_cast<double>(plan.streamed_bytes) / 2,
                static_cast<double>(4 * kUnitTarget));
  }
  EXPECT_EQ(before, 0u);
}

}  // namespace
}  // namespace sluice::residency

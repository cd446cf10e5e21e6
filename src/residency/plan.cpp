// Computes units, pins and the stream buffer from sizes alone.
#include <algorithm>

#include "residency/residency.h"

namespace sluice::residency {
namespace {

uint64_t ceil_div(int64_t a, int64_t b) {
  return static_cast<uint64_t>((a + b - 1) / b);
}

uint64_t packed_bytes(const MatrixSpec& m, int64_t rows, int64_t row_group) {
  if (m.kind == MatrixKind::kVector) return static_cast<uint64_t>(m.packed_group_bytes);
  return ceil_div(rows, row_group) * static_cast<uint64_t>(m.packed_group_bytes);
}

bool counted(MatrixKind kind) {
  return kind == MatrixKind::kDense || kind == MatrixKind::kExpert;
}

// Rows per unit: as many whole row groups as fit in `target` bytes, at least one group.
int64_t rows_of_unit(const MatrixSpec& m, int64_t row_group, uint64_t target) {
  if (m.kind == MatrixKind::kVector) return std::max<int64_t>(1, m.rows);
  const int64_t groups =
      static_cast<int64_t>(target) / std::max<int64_t>(1, m.row_bytes * row_group);
  return std::max<int64_t>(1, groups) * row_group;
}

uint64_t smallest_slot(std::span<const MatrixSpec> matrices, int64_t row_group) {
  uint64_t bytes = 1;
  for (const MatrixSpec& m : matrices) {
    if (!counted(m.kind)) continue;
    bytes = std::max(bytes, static_cast<uint64_t>(std::min(m.rows, row_group) * m.row_bytes));
  }
  return round_up_to_line(static_cast<size_t>(bytes));
}

void cut(std::span<const MatrixSpec> matrices, uint64_t target, Plan& plan) {
  size_t n = 0;
  for (const MatrixSpec& m : matrices) {
    n += static_cast<size_t>(ceil_div(m.rows, rows_of_unit(m, plan.row_group, target)));
  }
  plan.units = {};
  plan.units.reserve(n);
  plan.first_unit = {};
  plan.first_unit.reserve(matrices.size() + 1);
  for (size_t i = 0; i < matrices.size(); ++i) {
    const MatrixSpec& m = matrices[i];
    plan.first_unit.push_back(static_cast<uint32_t>(plan.units.size()));
    const int64_t step = rows_of_unit(m, plan.row_group, target);
    for (int64_t row = 0; row < m.rows; row += step) {
      Unit u;
      u.matrix = static_cast<int32_t>(i);
      u.row0 = row;
      u.rows = std::min(step, m.rows - row);
      u.kind = m.kind;
      u.file = m.file;
      u.offset = m.offset + static_cast<uint64_t>(row * m.row_bytes);
      u.bytes = static_cast<uint64_t>(u.rows * m.row_bytes);
      u.plain = m.plain || m.kind == MatrixKind::kEmbedding;
      u.packed_bytes = u.plain ? u.bytes : packed_bytes(m, u.rows, plan.row_group);
      u.pinned = m.kind == MatrixKind::kVector;
      plan.units.push_back(u);
    }
  }
  plan.first_unit.push_back(static_cast<uint32_t>(plan.units.size()));
}

bool alike(const Plan& plan, const Expert& a, const Expert& b) {
  const auto units = [&](const Expert& e) {
    return std::span(plan.units).subspan(e.first_unit, e.end_unit - e.first_unit);
  };
  const auto same = [](const Unit& x, const Unit& y) {
    return x.bytes == y.bytes && x.packed_bytes == y.packed_bytes;
  };
  return std::equal(units(a).begin(), units(a).end(), units(b).begin(), units(b).end(), same);
}

// Joins the matrices of each expert, and finds out which experts have the same sizes.
void list_experts(std::span<const MatrixSpec> matrices, Plan& plan) {
  plan.experts = {};
  std::vector<Expert> forms;
  for (size_t i = 0; i < matrices.size(); ++i) {
    const MatrixSpec& m = matrices[i];
    if (m.expert < 0 || m.kind != MatrixKind::kExpert) continue;
    const MatrixSpec* before = i > 0 ? &matrices[i - 1] : nullptr;
    if (before == nullptr || before->layer != m.layer || before->expert != m.expert) {
      plan.experts.push_back(
          {.first_unit = plan.first_unit[i], .layer = static_cast<uint32_t>(m.layer)});
    }
    plan.experts.back().end_unit = plan.first_unit[i + 1];
  }
  for (Expert& e : plan.experts) {
    while (e.form < forms.size() && !alike(plan, e, forms[e.form])) ++e.form;
    if (e.form == forms.size()) forms.push_back(e);
  }
}

// Pins whole experts so that pinned and streamed ones alternate evenly.
void pin_experts(Plan& plan, uint64_t* budget) {
  const auto bytes_of = [&](const Expert& e) {
    uint64_t bytes = 0;
    for (uint32_t u = e.first_unit; u < e.end_unit; ++u) bytes += plan.units[u].packed_bytes;
    return bytes;
  };
  uint64_t total = 0;
  for (const Expert& e : plan.experts) total += bytes_of(e);
  if (total == 0) return;
  const double ratio = std::min(1.0, static_cast<double>(*budget) / static_cast<double>(total));
  double credit = 0;
  for (const Expert& e : plan.experts) {
    const uint64_t bytes = bytes_of(e);
    credit += ratio * static_cast<double>(bytes);
    if (credit + 0.5 < static_cast<double>(bytes) || bytes > *budget) continue;
    credit -= static_cast<double>(bytes);
    *budget -= bytes;
    for (uint32_t u = e.first_unit; u < e.end_unit; ++u) plan.units[u].pinned = true;
  }
}

// Pins units of one kind so that pinned and streamed bytes alternate evenly, then fills the rest of
// the budget with whatever still fits.
void pin_evenly(Plan& plan, MatrixKind kind, uint64_t* budget) {
  uint64_t total = 0;
  for (const Unit& u : plan.units) {
    if (u.kind == kind) total += u.packed_bytes;
  }
  if (total == 0) return;
  const double ratio = std::min(1.0, static_cast<double>(*budget) / static_cast<double>(total));
  double credit = 0;
  for (int round = 0; round < 2; ++round) {
    for (Unit& u : plan.units) {
      if (u.kind != kind || u.pinned) continue;
      credit += ratio * static_cast<double>(u.packed_bytes);
      const bool due = round == 1 || credit + 0.5 >= static_cast<double>(u.packed_bytes);
      if (!due || u.packed_bytes > *budget) continue;
      credit -= static_cast<double>(u.packed_bytes);
      *budget -= u.packed_bytes;
      u.pinned = true;
    }
  }
}

void sum_up(Plan& plan) {
  plan.pinned_bytes = plan.streamed_bytes = plan.total_bytes = 0;
  for (const Unit& u : plan.units) {
    if (u.kind != MatrixKind::kEmbedding || u.pinned) plan.total_bytes += u.bytes;
    if (u.pinned && u.kind != MatrixKind::kVector) plan.pinned_bytes += u.packed_bytes;
    if (!u.pinned && counted(u.kind)) plan.streamed_bytes += u.bytes;
  }
}

}  // namespace

uint64_t minimum_budget(std::span<const MatrixSpec> matrices, int64_t row_group) {
  uint64_t everything = 0;
  for (const MatrixSpec& m : matrices) {
    if (counted(m.kind)) everything += packed_bytes(m, m.rows, row_group);
  }
  return std::min(everything, kMinSlots * smallest_slot(matrices, row_group));
}

Plan make_plan(std::span<const MatrixSpec> matrices, int64_t row_group, uint64_t budget) {
  Plan plan;
  plan.row_group = row_group;
  if (budget < minimum_budget(matrices, row_group)) return plan;
  cut(matrices, kUnitTarget, plan);
  uint64_t weights = 0, embedding = 0;
  for (const Unit& u : plan.units) {
    if (u.kind == MatrixKind::kEmbedding) embedding += u.packed_bytes;
    if (counted(u.kind)) weights += u.packed_bytes;
  }
  if (weights <= budget) {
    plan.embedding_resident = embedding > 0 && weights + embedding <= budget;
    for (Unit& u : plan.units) {
      u.pinned = u.kind != MatrixKind::kEmbedding || plan.embedding_resident;
    }
    sum_up(plan);
    return plan;
  }
  // A ring large enough to overlap reads with computation gets up to a quarter of the budget, pins
  // the rest. If units would become too small, fewer slots get up to half of the budget.
  const uint64_t smallest = smallest_slot(matrices, row_group);
  const bool scarce = budget / (6 * kMaxSlots) < kUnitTarget;
  const uint64_t target = std::max(smallest, std::min(budget / (2 * kFewSlots), kUnitTarget));
  cut(matrices, target, plan);
  for (const Unit& u : plan.units) {
    if (counted(u.kind)) plan.slot_bytes = std::max(plan.slot_bytes, u.bytes);
  }
  plan.slot_bytes = round_up_to_line(static_cast<size_t>(plan.slot_bytes));
  plan.n_slots = static_cast<uint32_t>(std::clamp<uint64_t>(
      budget / (scarce ? 2 : 4) / plan.slot_bytes, kMinSlots, scarce ? kFewSlots : kMaxSlots));
  uint64_t left = budget - plan.ring_bytes();
  pin_evenly(plan, MatrixKind::kDense, &left);
  list_experts(matrices, plan);
  pin_experts(plan, &left);
  pin_evenly(plan, MatrixKind::kExpert, &left);  // parts of experts, and those of no mixture
  sum_up(plan);
  return plan;
}

}  // namespace sluice::residency

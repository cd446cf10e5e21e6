// The model's tensors in the order in which a forward pass first uses them, as residency plans
// them.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernels.h"
#include "model/program.h"
#include "residency/residency.h"

namespace sluice::session {

struct WeightOrder {
  std::vector<residency::MatrixSpec> specs;  // every tensor once
  // Index in `specs` of each of the program's mats and vecs.
  std::vector<int32_t> mat_item, vec_item;
};

[[nodiscard]] WeightOrder weight_order(const model::Program& program, const kernels::Table& table);

}  // namespace sluice::session

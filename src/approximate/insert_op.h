// Inserts an operation into a finished program.
#pragma once

#include <cstddef>

#include "model/program.h"

namespace sluice::approximate {

// Before operation `at` of a pass for logits. What refers to operations by index keeps its meaning;
// marks of the operation before stay there.
void insert_op(model::Program* program, size_t at, const model::Op& op);

}  // namespace sluice::approximate

// Compares two directories of checkpoint tensors (measure/checkpoints.h), in the reference's order,
// and names the first tensor that differs by more than its tolerance. The default tolerances suit
// an f32 model: they cover the rounding of single operations.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "measure/checkpoints.h"

namespace sluice::measure {

enum class Distance : uint8_t { kLargest, kNmse, kMse };
[[nodiscard]] const char* distance_name(Distance distance);

struct LayerOptions {
  Distance distance = Distance::kLargest;  // what the tolerance limits
  double tolerance = 0;                    // 0: default per operation
  bool allow_missing = false;              // ignore tensors that only the reference has
};

struct LayerRow {
  std::string name;
  std::string problem;  // why it could not be compared; "": it was
  Difference difference;
  bool agrees = false;
};

struct LayerComparison {
  std::vector<LayerRow> rows;
  std::string divergence;  // the first one, in words; "": all agree
};

// Errors: kNotFound, kIo, kBadHeader for an index that cannot be read.
[[nodiscard]] Result<LayerComparison> compare_layers(const std::filesystem::path& ours,
                                                     const std::filesystem::path& reference,
                                                     const LayerOptions& options);

}  // namespace sluice::measure

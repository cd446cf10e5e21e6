// Compares tensor by tensor; only two are in memory at a time.
#include "measure/layer_comparison.h"

#include <cstdio>
#include <map>

namespace sluice::measure {
namespace {

double tolerance_of(const Checkpoint& checkpoint, const LayerOptions& options) {
  if (options.tolerance > 0) return options.tolerance;
  if (checkpoint.name.starts_with("result_output")) return 1e-3;
  if (checkpoint.op == "SOFT_MAX") return 1e-6;
  if (checkpoint.op == "RMS_NORM" || checkpoint.op == "ROPE") return 1e-5;
  return 1e-4;
}

double measured(const Difference& difference, Distance distance) {
  if (distance == Distance::kNmse) return difference.nmse;
  if (distance == Distance::kMse) return difference.mse;
  return difference.largest;
}

// Fills `row`; returns what is wrong, or "" if the tensor agrees.
std::string compare_one(const std::filesystem::path& our_folder, const Checkpoint* ours,
                        const std::filesystem::path& reference_folder, const Checkpoint& reference,
                        const LayerOptions& options, LayerRow* row) {
  if (ours == nullptr) {
    row->problem = "not in our index";
    row->agrees = options.allow_missing;
    return row->agrees ? "" : "is not in our index";
  }
  const auto refuse = [row](const Status& status) {
    row->problem = status.message();
    return "cannot be compared: " + status.message();
  };
  const auto our_values = read_values(our_folder, *ours);
  if (!our_values.ok()) return refuse(our_values.status());
  const auto reference_values = read_values(reference_folder, reference);
  if (!reference_values.ok()) return refuse(reference_values.status());
  const auto difference =
      compare_values(*ours, our_values.value(), reference, reference_values.value());
  if (!difference.ok()) return refuse(difference.status());
  row->difference = *difference;
  const double tolerance = tolerance_of(reference, options);
  row->agrees = measured(*difference, options.distance) <= tolerance;
  if (row->agrees) return "";
  char text[96];
  std::snprintf(text, sizeof text, "has a %s difference of %.3e, more than %.0e",
                distance_name(options.distance), measured(*difference, options.distance),
                tolerance);
  return text;
}

}  // namespace

const char* distance_name(Distance distance) {
  if (distance == Distance::kNmse) return "nmse";
  return distance == Distance::kMse ? "mse" : "largest";
}

Result<LayerComparison> compare_layers(const std::filesystem::path& ours,
                                       const std::filesystem::path& reference,
                                       const LayerOptions& options) {
  const auto our_index = read_index(ours);
  if (!our_index.ok()) return our_index.status();
  const auto reference_index = read_index(reference);
  if (!reference_index.ok()) return reference_index.status();
  std::map<std::string, const Checkpoint*> by_name;
  for (const Checkpoint& checkpoint : *our_index) by_name[checkpoint.name] = &checkpoint;
  LayerComparison out;
  for (const Checkpoint& checkpoint : *reference_index) {
    LayerRow& row = out.rows.emplace_back();
    row.name = checkpoint.name;
    const auto found = by_name.find(checkpoint.name);
    const std::string problem = compare_one(ours, found == by_name.end() ? nullptr : found->second,
                                            reference, checkpoint, options, &row);
    if (out.divergence.empty() && !problem.empty()) {
      out.divergence = checkpoint.name + " " + problem;
    }
  }
  if (out.rows.empty()) out.divergence = "the reference index is empty";
  return out;
}

}  // namespace sluice::measure

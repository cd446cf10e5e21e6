// sluice-compare: finds where two runs diverge. It compares a directory of checkpoint tensors with
// a reference directory, in the reference's order, and names the first tensor beyond its tolerance.
// The default tolerances suit an f32 model: they cover the rounding of single operations.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <string>

#include "tools/checkpoints.h"

namespace sluice::tools {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string ours, reference, measure = "largest";
  double tolerance = 0;  // 0: default per operation
  bool allow_missing = false;
};

double tolerance_of(const Checkpoint& checkpoint, const Options& options) {
  if (options.tolerance > 0) return options.tolerance;
  if (checkpoint.name.starts_with("result_output")) return 1e-3;
  if (checkpoint.op == "SOFT_MAX") return 1e-6;
  if (checkpoint.op == "RMS_NORM" || checkpoint.op == "ROPE") return 1e-5;
  return 1e-4;
}

double measured(const Difference& difference, const std::string& measure) {
  if (measure == "nmse") return difference.nmse;
  if (measure == "mse") return difference.mse;
  return difference.largest;
}

// Prints one line of the report. Returns what is wrong, or "" if the checkpoint agrees.
std::string compare_one(const Checkpoint& reference, const std::map<std::string, Checkpoint>& index,
                        const Options& options) {
  const auto ours = index.find(reference.name);
  if (ours == index.end()) {
    std::printf("%-28s %s\n", reference.name.c_str(), "not in our index");
    return options.allow_missing ? "" : "is not in our index";
  }
  const auto report = [&](const Status& status) {
    std::printf("%-28s %s\n", reference.name.c_str(), status.message().c_str());
    return "cannot be compared: " + status.message();
  };
  const auto our_values = read_values(options.ours, ours->second);
  if (!our_values.ok()) return report(our_values.status());
  const auto reference_values = read_values(options.reference, reference);
  if (!reference_values.ok()) return report(reference_values.status());
  const auto difference =
      compare_values(ours->second, our_values.value(), reference, reference_values.value());
  if (!difference.ok()) return report(difference.status());
  const Difference& d = difference.value();
  const double tolerance = tolerance_of(reference, options);
  const bool within = measured(d, options.measure) <= tolerance;
  std::printf("%-28s %10.3e %10.3e %12.9f %10.3e  %s\n", reference.name.c_str(), d.nmse, d.mse,
              d.cosine, d.largest, within ? "ok" : "DIVERGES");
  if (within) return "";
  char text[96];
  std::snprintf(text, sizeof text, "has a %s difference of %.3e, more than %.0e",
                options.measure.c_str(), measured(d, options.measure), tolerance);
  return text;
}

int compare(const Options& options) {
  const auto ours = read_index(options.ours);
  const auto reference = read_index(options.reference);
  for (const auto* index : {&ours, &reference}) {
    if (index->ok()) continue;
    std::fprintf(stderr, "sluice-compare: %s\n", index->status().message().c_str());
    return 2;
  }
  std::map<std::string, Checkpoint> by_name;
  for (const Checkpoint& checkpoint : ours.value()) by_name[checkpoint.name] = checkpoint;
  std::printf("%-28s %10s %10s %12s %10s\n", "checkpoint", "NMSE", "MSE", "cosine", "largest");
  std::string first;
  for (const Checkpoint& checkpoint : reference.value()) {
    const std::string verdict = compare_one(checkpoint, by_name, options);
    if (first.empty() && !verdict.empty()) first = checkpoint.name + " " + verdict;
  }
  if (reference.value().empty()) first = "the reference index is empty";
  if (first.empty()) {
    std::printf("all %zu checkpoints agree\n", reference.value().size());
    return 0;
  }
  std::printf("first divergence: %s\n", first.c_str());
  return 1;
}

}  // namespace
}  // namespace sluice::tools

int main(int argc, char** argv) {
  sluice::tools::Options options;
  CLI::App app("Compares checkpoint tensors with a reference and names the first that diverges.");
  app.add_option("ours", options.ours, "Directory written by sluice dump")->required();
  app.add_option("reference", options.reference, "Reference directory with an index.txt")
      ->required();
  app.add_option("--tolerance", options.tolerance,
                 "One tolerance for all tensors (default: 1e-4; RMSNorm and RoPE 1e-5, softmax "
                 "1e-6, logits 1e-3)")
      ->check(CLI::PositiveNumber);
  app.add_option("--measure", options.measure, "The measure that the tolerance limits")
      ->check(CLI::IsMember({"largest", "nmse", "mse"}))
      ->capture_default_str();
  app.add_flag("--allow-missing", options.allow_missing,
               "Ignore checkpoints that are missing in our directory (default: off)");
  CLI11_PARSE(app, argc, argv);
  return sluice::tools::compare(options);
}

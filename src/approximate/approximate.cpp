// Makes the modes that the options ask for and the file needs.
#include "approximate/clustered_embedding.h"
#include "approximate/clustered_head.h"
#include "approximate/early_exit.h"
#include "approximate/layer_skipping.h"
#include "session/memory_plan.h"

namespace sluice::session {

// Early exit comes before the clustered head: it looks at the operations of an exact model.
Status approximate(const gguf::Header& header, const EngineOptions& options,
                   const kernels::Table& table, model::Program* program, Approximations* modes) {
  const ApproximateOptions& wanted = options.approximate;
  if (wanted.skip_layers_ratio != 0) {
    const Result<std::vector<int32_t>> skipped =
        approximate::layers_to_skip(header, *program, wanted.skip_layers_ratio);
    if (!skipped.ok()) return skipped.status();
    Result<model::Program> shorter = model::build_program(header, *skipped);
    if (!shorter.ok()) return shorter.status();
    *program = std::move(*shorter);
  }
  program->approximated.changed = !program->skipped.empty();
  Status status;
  const auto add = [&](Result<std::unique_ptr<Approximation>> made) {
    if (!made.ok()) {
      status = made.status();
    } else if (*made != nullptr) {
      modes->push_back(std::move(*made));
    }
    return status.ok();
  };
  const auto mode = [modes] { return static_cast<int32_t>(modes->size()); };
  static_cast<void>(add(approximate::make_clustered_embedding(header, mode(), program)) &&
                    add(approximate::make_early_exit(
                        header, wanted.exits, options.kv_policy.heavy_hitter, mode(), program)) &&
                    add(approximate::make_clustered_head(header, wanted, table, mode(), program)));
  return status;
}

}  // namespace sluice::session

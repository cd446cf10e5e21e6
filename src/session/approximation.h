// Approximate modes (experimental), as the engine sees them: layer skipping, early exit, the
// clustered output head and the clustered embedding. src/approximate has them. A mode changes the
// program before it is planned: it adds operations that the executor hands back to it
// (model::ApproximateOp). The program of an exact model has none.
//
// approximate() is the only function that the session calls there. It is found when a program is
// linked. One that adds src/approximate/approximate_stub.cpp to its sources has no modes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"
#include "kernels/kernels.h"
#include "model/program.h"

namespace sluice::session {

struct ExecutionContext;
class WeightStream;
enum class WeightRun : uint8_t;
struct EngineOptions;

inline constexpr int32_t kMaxHeadClusters = 256;

// How much of the output head is multiplied (approximate/head_clusters.h).
struct HeadPolicy {
  enum class Kind : uint8_t {
    kByRatio,  // all of it if no layers are skipped or the file has no clusters, else a few
               // clusters
    kWhole,
    kSome,   // `clusters` clusters
    kExact,  // as many as needed to find the largest logit
  } kind = Kind::kByRatio;
  int32_t clusters = 8;
  // Whether clusters are asked for, not only used if the file has them.
  [[nodiscard]] bool needs_clusters() const { return kind == Kind::kSome || kind == Kind::kExact; }
};

// Whether tokens exit before the last layer (approximate/early_exit.h).
struct ExitPolicy {
  double confidence = 1;  // probability of being settled at which a token exits; 1: never
  bool measures = false;  // an ExitWatch decides, not the weights
  [[nodiscard]] bool on() const { return measures || confidence != 1; }
};

struct ApproximateOptions {
  // 0: the whole model. Towards 1, more of the least important layers are skipped.
  double skip_layers_ratio = 0;
  std::span<const int32_t> skip;  // layers to skip; borrowed, read while opening
  HeadPolicy head;
  ExitPolicy exits;
};

// Counters of the clustered output head.
struct HeadCounts {
  uint64_t rows = 0;      // rows of logits
  uint64_t known = 0;     // rows whose largest logit is proven to be that of the whole vocabulary
  uint64_t products = 0;  // tokens multiplied, over all rows
};

// Counters of early exit.
struct ExitCounts {
  uint64_t rows = 0;    // rows computed with early exit on
  uint64_t left = 0;    // rows that exited before the last layer
  uint64_t layers = 0;  // layers computed, over all rows
};

// Measurement (ExitPolicy::measures): receives a row's features after a layer,
// [approximate::kExitFeatures], and returns whether the row exits.
struct ExitWatch {
  bool (*leaves)(void* context, int32_t layer, std::span<const float> features) = nullptr;
  void* context = nullptr;
};

// What an engine knows of its modes from outside.
struct ApproximateState {
  HeadCounts head;
  ExitCounts exits;
  ExitWatch watch;
};

// The batch, as an operation of a mode sees it.
struct ApproximateRows {
  size_t at = 0;                    // the operation
  std::span<const int32_t> tokens;  // of the rows; kEmbed only
  int32_t rows = 0;
  const float* in = nullptr;  // [rows][ld_in] the operation's input
  float* out = nullptr;       // [rows][ld_out] and output
  int64_t ld_in = 0, ld_out = 0;
  bool begins = true;  // false: goes on where it was blocked
  bool logits = true;  // a pass for logits, not for embeddings
  WeightStream* weights = nullptr;
  bool jumps =
      false;  // set by the mode: go on ApproximateOp::jump operations further, not at the next
};

// A mode in one engine.
class Approximation {
 public:
  virtual ~Approximation() = default;
  // Called once, before the first pass. The context outlives the mode.
  virtual void attach(const ExecutionContext& context) = 0;
  // Runs one of the mode's operations.
  [[nodiscard]] virtual WeightRun run(const model::Op& op, ApproximateRows& rows) = 0;
};

using Approximations = std::vector<std::unique_ptr<Approximation>>;

// Adds to the program what the options ask for and the file needs, and the modes that run it.
// Errors: kNotInBuild, naming what this build omits; kInvalidArgument for a value out of range,
// or if the file or the model's architecture does not allow it; kBadHeader, naming the key.
[[nodiscard]] Status approximate(const gguf::Header& header, const EngineOptions& options,
                                 const kernels::Table& table, model::Program* program,
                                 Approximations* modes);

}  // namespace sluice::session

// A model as a file of other weight types. Weights go by in pieces: what is held is a few pieces
// for each thread, whatever the model's size, and pieces are what threads share out; a piece's
// bytes and errors do not depend on who makes it, so neither does the file.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "convert/imatrix.h"
#include "convert/sensitivity.h"
#include "convert/source.h"
#include "convert/types.h"

namespace sluice::convert {

// Where the file goes, from its first byte to its last; what stands at its front may come last.
class Sink {
 public:
  virtual ~Sink() = default;
  [[nodiscard]] virtual Status write(std::span<const uint8_t> bytes) = 0;
  // Writes over bytes that were written.
  [[nodiscard]] virtual Status patch(uint64_t offset, std::span<const uint8_t> bytes) = 0;
};

// How a QSF file's layers are compressed.
enum class Packing : uint8_t {
  kNone,
  kLz4,
  kLz4Hc,
  kZstd,
  kAuto,  // Zstandard for layers that are bf16 for the most part, of which it saves a fifth; else
          // none
};
// By its name on the command line. kInvalidArgument lists the names.
[[nodiscard]] Result<Packing> find_packing(std::string_view name);

struct Options {
  std::string type;  // a recipe's name; empty: every tensor keeps its type
  bool pure = false;
  struct WantedType {
    std::string name, type;  // a part of names, a recipe's name
  };
  std::vector<WantedType> tensor_types;  // of matrices by name, whatever `type` gives them
  uint64_t target_bytes =
      0;  // of the file; types are then chosen by what they lose, tensor by tensor
  double min_cosine = 0.99;   // of a tensor and its weights as decoded, for those chosen types
  std::vector<Probe> probes;  // what was measured for those; none: relative errors count alike
  int threads = 0;            // 0: as many as serve well here
  uint64_t held = 0;          // of the budget, by the source's files
  uint64_t memory_budget = 512ull << 20;  // for everything that the conversion holds
  const Imatrix* importance = nullptr;    // none: errors of all weights count alike
  std::vector<float> layers;  // importance by layer, which the file is to say; empty: as the source
  std::vector<float> exits;   // likewise gguf::kExitWeights
  bool cluster_head = false;  // finds clusters of the output vectors (model/head_clusters.h)
  // The type of what is left of the embedding's rows without the centres of their clusters
  // (gguf/embedding_clusters.h), for QSF; empty: they stay whole.
  std::string cluster_embedding;
  // Told now and then, in bytes of the output.
  std::function<void(uint64_t done, uint64_t total)> on_progress;
};

// What became of values further than three deviations from their tensor's mean.
enum class Outliers : uint8_t {
  kNone,     // there are none, or the type rounds each value for itself
  kKept,     // by the scales of their blocks, as well as the tensor may be
  kClamped,  // they are not: few, or the type was asked for
  kRaised,   // kept, for which the type is larger than the smallest that the tensor could have
};
// "kKept" as reports have it; empty for kNone.
[[nodiscard]] const char* name_of(Outliers outliers);

struct TensorReport {
  std::string name;
  gguf::TensorType from, to;
  bool fallback = false;  // the rows do not fit the type that was wanted
  bool weighted = false;  // by an importance matrix
  uint64_t values = 0, bytes_before = 0, bytes = 0;
  double mean_squared_error = 0, cosine = 1;
  double outlier_share = 0, outlier_error = 0;  // of values; of their power
  Outliers outliers = Outliers::kNone;
  Sensitivity sensitivity;  // under target_bytes
};
struct Report {
  std::vector<TensorReport> tensors;  // in the order of the file
  uint64_t bytes_before = 0;          // of weights
  uint64_t bytes = 0;                 // of the file
  uint64_t memory = 0;                // that was held
};

// Whether options.target_bytes can be reached, before anything is measured that takes longer: by
// shapes, and where it `reads` by what small types lose of each tensor. `qsf`: as QSF, so
// compressed. Errors: kInvalidArgument, naming the smallest size; those of reading.
[[nodiscard]] Status check_size(const Source& model, const Options& options,
                                std::optional<Packing> qsf, bool reads);

// Writes `model` as GGUF.
// Errors: those of reading and writing; kInvalidArgument for the type's name; kUnsupportedType for
// weights that cannot be read; kBadWeights for values that are no numbers or beyond the type's
// range; kBudgetTooSmall.
[[nodiscard]] Result<Report> to_gguf(const Source& model, const Options& options, Sink* sink);
// The same as QSF. Errors: kInvalidArgument, too, for layers that are too large for that.
[[nodiscard]] Result<Report> to_qsf(const Source& model, const Options& options, Packing packing,
                                    Sink* sink);

}  // namespace sluice::convert

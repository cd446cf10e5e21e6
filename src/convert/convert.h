// Converts a model to a file with other quantization types. Weights are processed in chunks, a few
// per thread, so memory use does not depend on the model's size. A chunk's bytes and errors do not
// depend on the thread, so neither does the file.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "convert/hessian.h"
#include "convert/imatrix.h"
#include "convert/sensitivity.h"
#include "convert/source.h"
#include "convert/types.h"

namespace sluice::convert {

// Receives the file's bytes in order. The front may be patched at the end.
class Sink {
 public:
  virtual ~Sink() = default;
  [[nodiscard]] virtual Status write(std::span<const uint8_t> bytes) = 0;
  // Overwrites bytes that were already written.
  [[nodiscard]] virtual Status patch(uint64_t offset, std::span<const uint8_t> bytes) = 0;
};

// How a QSF file's layers are compressed.
enum class Packing : uint8_t {
  kNone,
  kLz4,
  kLz4Hc,
  kZstd,
  kAuto,  // zstd for layers that are mostly bf16, which saves a fifth; else none
};
// Finds a compression by its command-line name. Errors: kInvalidArgument, listing the names.
[[nodiscard]] Result<Packing> find_packing(std::string_view name);

struct Options {
  std::string type;  // name of a quantization type or mix; empty: each tensor keeps its type
  bool pure = false;
  struct WantedType {
    std::string name, type;  // part of a tensor name; a type's name
  };
  std::vector<WantedType> tensor_types;  // overrides `type` for matching matrices
  uint64_t target_bytes = 0;  // maximum size of the file; chooses each tensor's type; 0: none
  // The minimum between a tensor and its decoded values: a tensor that `type` does not keep as
  // close gets the smallest larger type that does. Not given: none for `type`, kMinCosine for
  // target_bytes.
  std::optional<double> min_cosine;
  static constexpr double kMinCosine = 0.99;
  std::vector<Probe> probes;              // for target_bytes; none: relative errors count equally
  int threads = 0;                        // 0: chosen
  uint64_t held = 0;                      // bytes of the budget that the source's files hold
  uint64_t memory_budget = 512ull << 20;  // maximum bytes held by the conversion
  const Imatrix* importance = nullptr;    // null: all weights' errors count equally
  const Hessians* hessians = nullptr;     // for GPTQ's error feedback; null: none
  std::vector<float> layers;              // importance by layer, to store; empty: as in the source
  std::vector<float> exits;               // gguf::kExitWeights to store; empty: as in the source
  bool cluster_head = false;              // cluster the output head's rows (gguf/head_clusters.h)
  // QSF only: the type for the embedding's rows minus their cluster centres
  // (gguf/embedding_clusters.h). Empty: the embedding is stored directly.
  std::string cluster_embedding;
  // QSF only: experts of a mixture side by side, each with a checksum (QSF version 2).
  bool expert_records = false;
  bool qsf_types = false;  // types of QSF may be chosen for target_bytes and min_cosine
  // Called now and then with bytes of the output.
  std::function<void(uint64_t done, uint64_t total)> on_progress;

  [[nodiscard]] TypeFilter filter() const { return {importance != nullptr, qsf_types}; }
  [[nodiscard]] double cosine() const { return min_cosine.value_or(kMinCosine); }
};

// What happened to values more than three deviations from their tensor's mean.
enum class Outliers : uint8_t {
  kNone,     // no outliers, or the type stores each value separately
  kKept,     // represented as well as the tensor must be
  kClamped,  // not kept: they are few, or the type was requested
  kRaised,   // kept by choosing a larger type than the smallest possible
};
// The name in reports: "kept" for kKept, empty for kNone.
[[nodiscard]] const char* name_of(Outliers outliers);

struct TensorReport {
  std::string name;
  gguf::TensorType from, to;
  bool fallback = false;  // the rows do not fit the requested type
  bool weighted = false;  // by an importance matrix
  uint64_t values = 0, bytes_before = 0, bytes = 0;
  double mean_squared_error = 0, cosine = 1;
  double outlier_share = 0, outlier_error = 0;  // share of values; relative squared error
  Outliers outliers = Outliers::kNone;
  Sensitivity sensitivity;  // under target_bytes
};
struct Report {
  std::vector<TensorReport> tensors;  // in file order
  uint64_t bytes_before = 0;          // of the source's weights
  uint64_t bytes = 0;                 // of the file
  uint64_t memory = 0;                // bytes held at most
};

// Checks options.target_bytes before slower measurements: by shapes, and if `reads`, by the errors
// of small types on each tensor. `qsf`: the compression of a QSF file; nullopt: GGUF. Errors:
// kInvalidArgument, naming the smallest size; those of reading.
[[nodiscard]] Status check_size(const Source& model, const Options& options,
                                std::optional<Packing> qsf, bool reads);

// Writes `model` as GGUF. Errors: those of reading and writing; kInvalidArgument for an unknown
// type name; kUnsupportedType for weights that cannot be decoded; kBadWeights for values that are
// not finite or outside the type's range; kBudgetTooSmall.
[[nodiscard]] Result<Report> to_gguf(const Source& model, const Options& options, Sink* sink);
// Writes `model` as QSF. Further errors: kInvalidArgument for layers that are too large.
[[nodiscard]] Result<Report> to_qsf(const Source& model, const Options& options, Packing packing,
                                    Sink* sink);

}  // namespace sluice::convert

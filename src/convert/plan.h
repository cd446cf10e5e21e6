// The plan of an output file: its tensors, their order, types and row forms, decided before the
// first byte is written.
#pragma once

#include <optional>

#include "convert/bit_allocation.h"
#include "convert/chunks.h"
#include "convert/layout.h"

namespace sluice::convert {

struct Plan {
  gguf::Header header;             // of the output
  std::vector<gguf::Tensor> from;  // the same tensors in the source
  std::vector<Choice> choices;
  std::vector<Sensitivity> sensitivities;  // with a target size
  RowOrder by_cluster;  // row order of the second output head; empty: there is none
  std::optional<gguf::EmbeddingClusters> embedding;  // if stored as centres and remainders
};

// The model's tensors in the layout's order, with the file's metadata and the source's types.
// Errors: kInvalidArgument for options that this model or format does not support.
[[nodiscard]] Result<Plan> begin_plan(const Source& model, const Options& options,
                                      const Layout& layout);

// Computes the file's size for other types.
[[nodiscard]] Sizer sizer_for(const Source& model, const Options& options, const Layout& layout,
                              const Plan& plan);

// Bytes that converting holds besides chunks.
[[nodiscard]] uint64_t held_for(const Source& model, const Options& options, const Layout& layout);

// Chooses the types and computes the clusters. Errors: those of reading; kUnsupportedType;
// kInvalidArgument.
[[nodiscard]] Status finish_plan(const Source& model, const Options& options, const Layout& layout,
                                 ChunkMaker* maker, Plan* plan);

}  // namespace sluice::convert

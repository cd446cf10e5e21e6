// What a file will have, before its first byte is written: which tensors, in which order, of which
// types and in which form.
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
  std::vector<Sensitivity> sensitivities;  // where a size was asked for
  RowOrder by_cluster;  // of the output vectors that are written once more; empty: they are not
  std::optional<gguf::EmbeddingClusters> embedding;  // of the header; where it is written as a rest
};

// The model's tensors in the layout's order, with what the file says besides; types are the
// source's. Errors: kInvalidArgument for what cannot be had of this model or in such a file.
[[nodiscard]] Result<Plan> begin_plan(const Source& model, const Options& options,
                                      const Layout& layout);

// How large a file of such a plan is with other types.
[[nodiscard]] Sizer sizer_for(const Source& model, const Options& options, const Layout& layout,
                              const Plan& plan);

// What converting holds besides pieces.
[[nodiscard]] uint64_t held_for(const Source& model, const Options& options, const Layout& layout);

// Chooses the types, and finds the clusters that the file is to have. Errors: those of reading;
// kUnsupportedType; kInvalidArgument.
[[nodiscard]] Status finish_plan(const Source& model, const Options& options, const Layout& layout,
                                 ChunkMaker* maker, Plan* plan);

}  // namespace sluice::convert

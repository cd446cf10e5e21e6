// Per-layer embeddings (Gemma 3n, Gemma 4): a table with one row of n_layer * n values per token,
// of which each layer reads its part. The table is far larger than the rest of the model, so it is
// read row by row and never resident. A layer mixes its part with a projection of the token's
// embedding, which is kept in columns of kX for that.
#pragma once

#include "model/builder.h"

namespace sluice::model {

// Whether a layer has the window: as listed, or all but the last of every `period` layers.
[[nodiscard]] bool is_local(const HParams& hp, int64_t layer, int64_t period);
// The layer whose KV cache a layer reads: itself, or the last layer of the same kind that has one;
// -1: none.
[[nodiscard]] int32_t kv_layer(const HParams& hp, int64_t layer, int64_t period);

class PerLayerEmbeddings {
 public:
  // Call after Builder::embed: copies the embedding to column `kept` of kX. Does nothing if the
  // model has no per-layer embeddings.
  PerLayerEmbeddings(Builder& b, int64_t kept);

  // in -> kT: gate, the layer's part, projection and norm.
  void apply(int64_t layer, Columns in);

 private:
  void mix(int64_t layer, Columns out);

  Builder& b_;
  int64_t kept_ = 0;
  int32_t table_ = -1, norm_ = -1;
};

}  // namespace sluice::model

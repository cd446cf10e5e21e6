// Embeddings that each layer has of its own for every token (Gemma 3n, Gemma 4): a table with one
// row of n_layer * n values a token, of which a layer reads its part. The table is far larger than
// the rest of the model and is read row by row, never held. A layer mixes its part with a
// projection of the token's embedding, which waits for that in columns of kX.
#pragma once

#include "model/builder.h"

namespace sluice::model {

// Whether a layer has the window: as listed, or all but the last of each `period`.
[[nodiscard]] bool is_local(const HParams& hp, int64_t layer, int64_t period);
// The layer whose keys and values a layer attends to: the last of its kind that keeps any where it
// keeps none itself, -1 without one.
[[nodiscard]] int32_t kv_layer(const HParams& hp, int64_t layer, int64_t period);

class PerLayerEmbeddings {
 public:
  // After Builder::embed: copies the embedding to column `kept` of kX. Without any where the model
  // has none.
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

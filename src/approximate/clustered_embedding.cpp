// Adds the centres to the rows of a batch's tokens.
#include "approximate/clustered_embedding.h"

#include "gguf/embedding_clusters.h"
#include "session/weight_stream.h"

namespace sluice::approximate {
namespace {

class ClusteredEmbedding final : public session::Approximation {
 public:
  explicit ClusteredEmbedding(const gguf::EmbeddingClusters& clusters)
      : of_(clusters.of.begin(), clusters.of.end()),
        centres_(clusters.centres.begin(), clusters.centres.end()),
        cols_(clusters.cols) {}

  void attach(const session::ExecutionContext&) override {}
  [[nodiscard]] session::WeightRun run(const model::Op&, session::ApproximateRows& rows) override {
    const gguf::EmbeddingClusters clusters{of_, centres_, cols_};
    float* x = rows.out;
    for (const int32_t token : rows.tokens) {
      clusters.add(static_cast<uint64_t>(token) * cols_, cols_, 1, x);
      x += rows.ld_out;
    }
    return session::WeightRun::kDone;
  }

 private:
  const std::vector<uint8_t> of_, centres_;
  const uint64_t cols_;
};

}  // namespace

Result<std::unique_ptr<session::Approximation>> make_clustered_embedding(const gguf::Header& header,
                                                                         int32_t mode,
                                                                         model::Program* program) {
  using Made = std::unique_ptr<session::Approximation>;
  const gguf::Tensor* rest = header.find_tensor(gguf::kEmbeddingRest);
  if (rest == nullptr) return Made();
  const Result<gguf::EmbeddingClusters> clusters = gguf::embedding_clusters(header, *rest);
  if (!clusters.ok()) return clusters.status();
  for (model::Op& op : program->ops) {
    if (op.is<model::EmbedOp>()) op.as<model::EmbedOp>().mode = mode;
  }
  program->approximated.bytes += clusters->of.size() + clusters->centres.size();
  return Made(std::make_unique<ClusteredEmbedding>(*clusters));
}

}  // namespace sluice::approximate

// Reads a clustered token embedding. Every length and index is checked before it is used.
#include "gguf/embedding_clusters.h"

#include <algorithm>

#include "kernels/kernels.h"

namespace sluice::gguf {
namespace {

constexpr uint64_t kBlock = 32, kBlockBytes = 34;  // of Q8_0

Result<Bytes> bytes_of(const Header& header, std::string_view key, uint64_t whole) {
  const Value* value = header.find(key);
  const bool fits = value != nullptr && value->type == ValueType::kArray &&
                    value->element == ValueType::kU8 && value->count > 0 &&
                    value->count % whole == 0;
  if (fits) return value->bytes;
  return error(Code::kBadHeader, "the metadata value %s does not fit the embedding",
               std::string(key).c_str());
}

}  // namespace

void EmbeddingClusters::add(uint64_t first, uint64_t n, float sign, float* x) const {
  const kernels::Table& table = kernels::best();
  for (uint64_t done = 0; done < n; done += kBlock) {
    const uint64_t row = (first + done) / cols, col = (first + done) % cols;
    const uint64_t block = (of[row] * cols + col) / kBlock;
    float y[kBlock];
    table.dequantize(kernels::Type::kQ8_0, centres.data() + block * kBlockBytes, kBlock, y);
    for (uint64_t i = 0; i < kBlock; ++i) x[done + i] += sign * y[i];
  }
}

Result<EmbeddingClusters> embedding_clusters(const Header& header, const Tensor& rest) {
  EmbeddingClusters out;
  out.cols = rest.cols();
  const Result<Bytes> of = bytes_of(header, kEmbeddingClusterOf, rest.rows());
  if (!of.ok()) return of.status();
  const uint64_t row_bytes = std::max<uint64_t>(1, rest.cols() / kBlock * kBlockBytes);
  const Result<Bytes> centres = bytes_of(header, kEmbeddingCentres, row_bytes);
  if (!centres.ok()) return centres.status();
  const uint64_t n = centres->size() / row_bytes;
  const bool good = rest.cols() % kBlock == 0 && of->size() == rest.rows() &&
                    std::all_of(of->begin(), of->end(), [n](uint8_t c) { return c < n; }) &&
                    kernels::all_finite(kernels::Type::kQ8_0, centres->data(),
                                        static_cast<int64_t>(n * rest.cols()));
  if (!good) {
    return error(Code::kBadHeader, "the embedding's clusters do not match its rows");
  }
  out.of = *of;
  out.centres = *centres;
  return out;
}

}  // namespace sluice::gguf

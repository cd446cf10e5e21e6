// The model to convert, presented as a GGUF file. Differences of Hugging Face checkpoints (queries
// and keys in rotate-half order, norms stored as w - 1) are undone on reading, as are embedding
// clusters. The metadata keys that described them are removed, so writers just copy.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "gguf/embedding_clusters.h"
#include "gguf/gguf.h"
#include "io/byte_source.h"

namespace sluice::convert {

// A row permutation: row i is the stored row order[i].
using RowOrder = std::vector<int32_t>;

using Sources = std::span<const std::unique_ptr<io::ByteSource>>;

class Source {
 public:
  // `header` and `sources` must outlive the source. Errors: kUnsupportedType, kBadShape.
  [[nodiscard]] static Result<Source> create(const gguf::Header& header, Sources sources);

  // Metadata as in GGUF. Tensors have the source's offsets. Its views live as long as the source
  // and the header that it was created from.
  [[nodiscard]] const gguf::Header& header() const { return header_; }
  // Whether the bytes of `tensor` can be copied unchanged.
  [[nodiscard]] bool as_stored(const gguf::Tensor& tensor) const;
  // Whether it is an embedding that is summed from centres and remainders.
  [[nodiscard]] bool joins(const gguf::Tensor& tensor) const {
    return clusters_.cols > 0 && tensor.name == kEmbedding;
  }
  // Whether values of this type can be decoded.
  [[nodiscard]] static bool readable(gguf::TensorType type);

  // Decodes values [first, first + n) of `tensor` to f32; first and n must be multiples of the
  // block. `bytes` is scratch of kMaxValueBytes per value. Thread-safe. Errors: those of the
  // source; kBadWeights for values that are not finite.
  [[nodiscard]] Status read(const gguf::Tensor& tensor, uint64_t first, uint64_t n,
                            std::span<uint8_t> bytes, float* out,
                            const RowOrder* order = nullptr) const;
  // Reads stored bytes unchanged.
  [[nodiscard]] Status read_bytes(const gguf::Tensor& tensor, uint64_t offset,
                                  std::span<uint8_t> out, const RowOrder* order = nullptr) const;
  static constexpr uint64_t kMaxValueBytes = 4;

 private:
  static constexpr std::string_view kEmbedding = "token_embd.weight";
  [[nodiscard]] Status join_embedding();
  struct Turn {  // transformation of a matrix or norm on reading
    uint64_t head_rows = 0;
    float offset = 0;  // added to every value
  };
  [[nodiscard]] Turn turn_of(const gguf::Tensor& tensor) const;
  [[nodiscard]] Status read_stored(const gguf::Tensor& tensor, uint64_t first, uint64_t n,
                                   std::span<uint8_t> bytes, float* out,
                                   const RowOrder* order) const;

  gguf::Header header_;
  std::span<const std::unique_ptr<io::ByteSource>> sources_;
  gguf::EmbeddingClusters clusters_;  // of the embedding; cols is 0 if there are none
  bool rotate_half_ = false;
  float norm_offset_ = 0;
  uint64_t head_size_ = 0;
};

}  // namespace sluice::convert

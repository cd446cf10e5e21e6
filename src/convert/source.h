// The model that is converted, as a GGUF file has it: what a Hugging Face checkpoint stores
// otherwise (queries and keys in rotate-half order, norms as w - 1) is turned on reading, and the
// keys that told the engine of it are gone; so are an embedding's clusters. So whoever writes a
// file copies, and no other program has to know.
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

// Rows of a matrix in another order: row i is the stored row order[i]. Null: as they are stored.
using RowOrder = std::vector<int32_t>;

using Sources = std::span<const std::unique_ptr<io::ByteSource>>;

class Source {
 public:
  // `header` and `sources` outlive the source. Errors: kUnsupportedType, kBadShape.
  [[nodiscard]] static Result<Source> create(const gguf::Header& header, Sources sources);

  // Metadata as a GGUF has it; tensors as in the source, which says where their bytes lie. Its
  // views live as long as the source and the header that it was made of.
  [[nodiscard]] const gguf::Header& header() const { return header_; }
  // Whether the bytes of `tensor` may be copied as they are.
  [[nodiscard]] bool as_stored(const gguf::Tensor& tensor) const;
  // Whether it is an embedding whose rows are put together from centres and a rest of its type.
  [[nodiscard]] bool joins(const gguf::Tensor& tensor) const {
    return clusters_.cols > 0 && tensor.name == kEmbedding;
  }
  // Whether values of this type can be read.
  [[nodiscard]] static bool readable(gguf::TensorType type);

  // Values [first, first + n) of `tensor` in f32, first and n of whole blocks. `bytes` is room for
  // n values as stored, kMaxValueBytes each. From any thread.
  // Errors: those of the source; kBadWeights for what is not a number.
  [[nodiscard]] Status read(const gguf::Tensor& tensor, uint64_t first, uint64_t n,
                            std::span<uint8_t> bytes, float* out,
                            const RowOrder* order = nullptr) const;
  // Bytes as they lie in the file.
  [[nodiscard]] Status read_bytes(const gguf::Tensor& tensor, uint64_t offset,
                                  std::span<uint8_t> out, const RowOrder* order = nullptr) const;
  static constexpr uint64_t kMaxValueBytes = 4;

 private:
  static constexpr std::string_view kEmbedding = "token_embd.weight";
  [[nodiscard]] Status join_embedding();
  struct Turn {  // of a matrix whose rows are in rotate-half order
    uint64_t head_rows = 0;
    float offset = 0;  // added to every value
  };
  [[nodiscard]] Turn turn_of(const gguf::Tensor& tensor) const;
  [[nodiscard]] Status read_stored(const gguf::Tensor& tensor, uint64_t first, uint64_t n,
                                   std::span<uint8_t> bytes, float* out,
                                   const RowOrder* order) const;

  gguf::Header header_;
  std::span<const std::unique_ptr<io::ByteSource>> sources_;
  gguf::EmbeddingClusters clusters_;  // of the embedding; of no columns: none
  bool rotate_half_ = false;
  float norm_offset_ = 0;
  uint64_t head_size_ = 0;
};

}  // namespace sluice::convert

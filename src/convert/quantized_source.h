// Tensors of a model as other types, without a file: what is read of them is quantized on the way.
// So an engine runs the very weights that a conversion would write, before anything is written.
#pragma once

#include <vector>

#include "convert/convert.h"
#include "io/byte_source.h"

namespace sluice::convert {

// The types that a tensor may become when they are chosen for it, smaller than its own; empty for
// one that stays as it is. Ascending in bytes.
[[nodiscard]] std::vector<gguf::TensorType> types_for(const gguf::Tensor& tensor);

// A file of the model, one tensor after the other. Read from any thread; a reader holds
// kSubstituteRoom bytes.
class QuantizedSource final : public io::ByteSource {
 public:
  // What `from` points to outlives this.
  explicit QuantizedSource(const Source& from) : from_(from) {}

  // Has `tensor`, of the source, as `type`; returns it as it lies here, of this file of the model.
  // `importance` may be null and outlives this. Errors: those of gguf::set_tensor_bytes.
  [[nodiscard]] Result<gguf::Tensor> add(const gguf::Tensor& tensor, gguf::TensorType type,
                                         const std::vector<float>* importance, uint32_t file);

  [[nodiscard]] uint64_t size() const override { return size_; }
  // Errors: those of the source; kBadWeights.
  [[nodiscard]] Status read(uint64_t offset, std::span<uint8_t> out) override;

 private:
  struct Part {
    gguf::Tensor from, as;
    const std::vector<float>* importance;
  };
  const Source& from_;
  std::vector<Part> parts_;  // by offset
  uint64_t size_ = 0;
};

inline constexpr uint64_t kSubstitutePiece = 1 << 12;  // values; whole blocks of every type
inline constexpr uint64_t kSubstituteRoom = kSubstitutePiece * 16;

}  // namespace sluice::convert

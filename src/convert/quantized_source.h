// A virtual file with tensors of a model in other types, quantized when read. An engine can so run
// the exact weights that a conversion would write.
#pragma once

#include <vector>

#include "convert/convert.h"
#include "io/byte_source.h"

namespace sluice::convert {

// The types smaller than its own that may be chosen for a tensor, smallest first; empty if it must
// keep its type.
[[nodiscard]] std::vector<gguf::TensorType> types_for(const gguf::Tensor& tensor,
                                                      const TypeFilter& filter);

// A virtual file of the model, one tensor after another. Thread-safe. Each reader holds
// kSubstituteRoom bytes.
class QuantizedSource final : public io::ByteSource {
 public:
  // What `from` points to must outlive this.
  explicit QuantizedSource(const Source& from) : from_(from) {}

  // Adds `tensor` of the source as `type`, and returns it with its place in this file, which is
  // number `file` of the model. `importance` may be null and must outlive this. Errors: those of
  // gguf::set_tensor_bytes.
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

inline constexpr uint64_t kSubstitutePiece = 1 << 12;  // values; a multiple of every type's block
inline constexpr uint64_t kSubstituteRoom = kSubstitutePiece * 16;

}  // namespace sluice::convert

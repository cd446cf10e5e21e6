// Writes GGUF v3 headers: metadata in the order added, then the tensor directory with offsets
// computed here. The caller writes the data, after the header, at each tensor's offset.
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/gguf.h"

namespace sluice::make_model {

inline constexpr uint64_t kGgufAlignment = 32;

class GgufWriter {
 public:
  void add(std::string_view key, std::string_view value);
  void add(std::string_view key, const char* value) { add(key, std::string_view(value)); }
  void add(std::string_view key, uint32_t value);
  void add(std::string_view key, float value);
  void add(std::string_view key, bool value);
  void add(std::string_view key, std::span<const std::string> values);
  void add(std::string_view key, std::span<const float> values);
  void add(std::string_view key, std::span<const int32_t> values);

  // Returns the tensor's offset in the data section. `ne` as ggml orders it, ne[0] contiguous.
  uint64_t add_tensor(std::string_view name, gguf::TensorType type, std::span<const uint64_t> ne,
                      uint64_t bytes);

  // The whole header, padded to the alignment; its size is where the data begins.
  [[nodiscard]] std::string header() const;
  [[nodiscard]] uint64_t data_bytes() const { return data_bytes_; }

 private:
  void key(std::string_view name, gguf::ValueType type);
  void array(std::string_view name, gguf::ValueType element, uint64_t count);

  std::string metadata_, directory_;
  uint64_t n_values_ = 0, n_tensors_ = 0, data_bytes_ = 0;
};

}  // namespace sluice::make_model

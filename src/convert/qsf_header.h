// What stands before the sections of a QSF file: its header, the index of layers, and the metadata
// with a list of tensors and of the other sections. Its length follows from names alone, its bytes
// from where the sections lie and what their checksums are, which is known last.
#pragma once

#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "gguf/gguf.h"
#include "qsf/qsf.h"

namespace sluice::convert {

inline constexpr uint8_t kMixedTypes = 5;  // of a file's or a section's quantization

// Little-endian numbers and text, one after the other.
class Bytes {
 public:
  template <typename T>
  void put(T value) {
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof value);
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }
  void put_text(std::string_view text) { bytes_.insert(bytes_.end(), text.begin(), text.end()); }
  void pad_to(uint64_t n) { bytes_.resize(static_cast<size_t>(n)); }
  [[nodiscard]] const std::vector<uint8_t>& all() const { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
};

struct QsfSection {      // a layer, or one of the others
  std::string_view key;  // "blk.7." of a layer
  bool layer = false;
  qsf::Compression compression = qsf::Compression::kNone;
  uint64_t offset = 0, stored = 0, bytes = 0;
  uint32_t crc = 0, tensors = 0;
  uint8_t quantization = kMixedTypes;
};

// The format's number of a type.
[[nodiscard]] uint8_t qsf_type_code(gguf::TensorType type);

class QsfHeaderWriter {
 public:
  // Of a file with so many layers, and sections besides.
  QsfHeaderWriter(const gguf::Header& header, uint32_t n_layers, uint32_t n_others)
      : header_(header), n_layers_(n_layers), n_others_(n_others) {}

  [[nodiscard]] uint64_t bytes() const;
  // Of a file that has `file_bytes`, this included; tensors have their offsets.
  [[nodiscard]] std::vector<uint8_t> write(std::span<const QsfSection> sections,
                                           uint64_t file_bytes) const;

 private:
  [[nodiscard]] Bytes head(std::span<const QsfSection> sections, uint64_t file_bytes) const;
  [[nodiscard]] Bytes index(std::span<const QsfSection> sections) const;
  [[nodiscard]] Bytes metadata(std::span<const QsfSection> sections, uint32_t sum_before) const;
  [[nodiscard]] uint64_t metadata_offset() const;

  const gguf::Header& header_;
  uint32_t n_layers_, n_others_;
};

}  // namespace sluice::convert

// The front of a QSF file: its header, the layer index, and the metadata with lists of tensors and
// of other sections. Its length depends only on names. Its contents need section offsets and
// checksums, so it is written last.
#pragma once

#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "convert/expert_records.h"
#include "gguf/gguf.h"
#include "qsf/qsf.h"

namespace sluice::convert {

// A buffer of little-endian numbers and text.
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

struct QsfSection {      // a layer, or another section
  std::string_view key;  // "blk.7." for a layer
  bool layer = false;
  qsf::Compression compression = qsf::Compression::kNone;
  uint64_t offset = 0, stored = 0, bytes = 0;
  uint32_t crc = 0, tensors = 0;
};

// The format's code of a type.
[[nodiscard]] uint8_t qsf_type_code(gguf::TensorType type);

class QsfHeaderWriter {
 public:
  // For a file with `n_layers` layers, `n_others` other sections, and a table of experts of
  // `group_bytes` bytes; 0: none.
  QsfHeaderWriter(const gguf::Header& header, uint32_t n_layers, uint32_t n_others,
                  uint64_t group_bytes)
      : header_(header), n_layers_(n_layers), n_others_(n_others), group_bytes_(group_bytes) {}

  [[nodiscard]] uint64_t bytes() const;
  // The front of a file of `file_bytes` bytes in total. The header's tensors must have offsets.
  [[nodiscard]] std::vector<uint8_t> write(std::span<const QsfSection> sections,
                                           std::span<const ExpertGroup> groups,
                                           uint64_t file_bytes) const;

 private:
  [[nodiscard]] Bytes head(std::span<const QsfSection> sections, uint64_t file_bytes) const;
  [[nodiscard]] Bytes index(std::span<const QsfSection> sections) const;
  [[nodiscard]] Bytes metadata(std::span<const QsfSection> sections,
                               std::span<const ExpertGroup> groups, uint32_t sum_before) const;
  [[nodiscard]] uint64_t metadata_offset() const;

  const gguf::Header& header_;
  uint32_t n_layers_, n_others_;
  uint64_t group_bytes_;
};

}  // namespace sluice::convert

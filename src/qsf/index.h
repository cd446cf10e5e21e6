// The parts of a QSF file that every writer has in common: the header's fields and the layer index.
// parse.cpp reads them for our files, native/foreign_qsf.h for those of other programs.
#pragma once

#include <cstring>

#include "qsf/qsf.h"

namespace sluice::qsf {

// The little-endian number at bytes [at, at + sizeof(T)), which must exist.
template <typename T>
T field(gguf::Bytes bytes, uint64_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

struct Front {
  uint32_t layers = 0, hidden = 0, vocabulary = 0;
  uint64_t index = 0, metadata = 0, metadata_bytes = 0;  // metadata_bytes 0: no metadata section
  [[nodiscard]] uint64_t index_bytes() const { return layers * kEntryBytes; }
};

// Errors: kUnsupportedVersion, kBadHeader, kTruncated, kCorrupt (its checksum).
[[nodiscard]] Status read_front(gguf::Bytes header, uint64_t file_size, Front* out);
// Reads the index into one run per layer, in the order of layers. Errors: kBadHeader.
[[nodiscard]] Status read_index(gguf::Bytes index, std::vector<Run>* runs);
// Checks that every run lies in the file, behind the header, and does not overlap another. Sorts
// them by address. Errors: kBadHeader, kTruncated.
[[nodiscard]] Status check_places(std::vector<Run>& runs, uint64_t file_size);

}  // namespace sluice::qsf

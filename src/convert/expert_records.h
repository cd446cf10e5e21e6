// Writes a mixture's experts side by side: one record per expert of a layer, with its slices of the
// layer's expert tensors (qsf/experts.h). Tensors arrive one after another, so the records
// are filled with zeros first, and each slice is patched in.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "convert/layout.h"
#include "qsf/experts.h"

namespace sluice::convert {

// The experts of a layer.
struct ExpertGroup {
  std::string_view layer;  // "blk.7."
  uint64_t offset = 0;     // of the first record
  uint64_t record = 0;     // bytes, without what aligns the next one
  std::vector<uint64_t> slices;
  std::vector<uint32_t> crcs;
};

// Whether a tensor has a slice per expert, such as "blk.7.ffn_up_exps.weight".
[[nodiscard]] bool has_experts(std::string_view tensor);

class ExpertRecords {
 public:
  // `output`: without a sink, bytes are only counted.
  ExpertRecords(gguf::Header* header, Output* output) : header_(header), output_(output) {}

  // Starts tensor i of the header, which has_experts(), and sets its offset. `layer`: the part of
  // its name that the tensors of its layer share. Errors: kInvalidArgument for tensors of a layer
  // with different numbers of experts, or records of more than 4 GB.
  [[nodiscard]] Status start(size_t i, std::string_view layer);
  [[nodiscard]] Status write(std::span<const uint8_t> bytes);
  // After the last tensor.
  void finish() { close(); }
  [[nodiscard]] const std::vector<ExpertGroup>& groups() const { return groups_; }
  // Bytes of the table's entry for a layer.
  [[nodiscard]] static uint64_t entry_bytes(uint64_t tensors, uint64_t experts) {
    return qsf::kExpertEntryBytes + 4 * (tensors + experts);
  }

 private:
  [[nodiscard]] Status open(size_t i, std::string_view layer);
  void close();
  [[nodiscard]] uint64_t alignment() const;

  gguf::Header* header_;
  Output* output_;
  std::vector<ExpertGroup> groups_;
  // The current tensor: bytes of a slice, its place in the records, bytes so far.
  uint64_t slice_ = 0, at_ = 0, done_ = 0;
  uint64_t end_ = 0;            // of the last tensor's slices in the records
  std::vector<uint32_t> sums_;  // of the current tensor's slices
};

}  // namespace sluice::convert

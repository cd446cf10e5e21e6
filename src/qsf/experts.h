// Experts side by side, in QSF of version 2. A record per expert of a layer holds the expert's
// slices of the layer's expert tensors, and has a checksum of its own, so that an expert is read
// and verified alone. The tensors have virtual addresses, as if each were in one piece; here is
// where their slices are. Header bytes 112 to 119 are the offset of the table of experts, which is
// in the metadata section, bytes 120 to 123 its size. It has an entry per layer:
//   offset of the record of expert 0 u64, bytes of a record u32, experts u32, tensors u32,
//   alignment u32 of addresses and of slices in a record;
//   for each tensor the bytes of a slice u32; for each expert the CRC-32 of its record u32.
// The records of a layer follow one another, each at a multiple of kRecordAlignment.
#pragma once

#include "base/round_up.h"
#include "qsf/qsf.h"

namespace sluice::qsf {

inline constexpr int kExpertBits = 40;  // address bits of one entry
inline constexpr uint64_t kExpertEntryBytes = 24;
inline constexpr uint64_t kRecordAlignment = 4096;
// Caps for untrusted tables.
inline constexpr uint32_t kMaxRecords = 1u << 16, kMaxExpertTensors = 64;

// A tensor of experts. The slice of expert e is at file + e * stride.
struct ExpertTensor {
  uint64_t address = 0, bytes = 0;  // virtual, of the whole tensor
  uint64_t slice = 0;               // bytes of one expert
  uint64_t file = 0;                // offset of expert 0 in the file
  uint64_t stride = 0;              // from one record to the next
};

struct Experts {
  std::vector<ExpertTensor> tensors;  // by address
  std::vector<Run> records;           // at their places in the file
};

// Where the table is in the file. 0 bytes: it has none. `header`: its first kHeaderBytes.
// Errors: kBadHeader if the table is not in the metadata section, which has a checksum.
struct ExpertTable {
  uint64_t offset = 0, bytes = 0;
};
[[nodiscard]] Result<ExpertTable> find_experts(gguf::Bytes header);
// Reads the table. Errors: kBadHeader.
[[nodiscard]] Result<Experts> read_experts(gguf::Bytes table);
// Checks that the model's tensors at addresses of experts are those of the table. Errors:
// kBadHeader.
[[nodiscard]] Status check_experts(const Experts& experts, const gguf::Header& header);

}  // namespace sluice::qsf

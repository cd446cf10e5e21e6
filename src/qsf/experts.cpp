// Reads and checks the table of experts.
#include "qsf/experts.h"

#include <algorithm>

#include "base/sort.h"
#include "qsf/index.h"

namespace sluice::qsf {
namespace {

using gguf::Bytes;

Status bad_table(const char* what) {
  return error(Code::kBadHeader, "the QSF table of experts is invalid: %s", what);
}

// Reads the entry at the front of `table`, and removes it there.
Status read_layer(Bytes* table, uint64_t address, Experts* out) {
  if (table->size() < kExpertEntryBytes) return bad_table("it is too short");
  const auto offset = field<uint64_t>(*table, 0);
  const auto bytes = field<uint32_t>(*table, 8), experts = field<uint32_t>(*table, 12);
  const auto tensors = field<uint32_t>(*table, 16), alignment = field<uint32_t>(*table, 20);
  *table = table->subspan(kExpertEntryBytes);
  if (tensors == 0 || tensors > kMaxExpertTensors || experts == 0 ||
      experts > kMaxRecords - out->records.size()) {
    return bad_table("a layer has too many experts or tensors, or none");
  }
  if (table->size() / 4 < uint64_t{tensors} + experts) return bad_table("it is too short");
  if (alignment < kTensorAlignment || (alignment & (alignment - 1)) != 0) {
    return bad_table("a layer has an impossible alignment");
  }
  const uint64_t stride = round_up(bytes, kRecordAlignment), end = address + (1ull << kExpertBits);
  uint64_t at = 0;
  for (uint32_t i = 0; i < tensors; ++i) {
    ExpertTensor& t = out->tensors.emplace_back();
    t.slice = field<uint32_t>(*table, 4 * uint64_t{i});
    t.bytes = experts * t.slice;
    t.address = round_up(address, alignment);
    at = round_up(at, alignment);
    t.file = offset + at;
    t.stride = stride;
    if (t.slice == 0 || t.address >= end || t.bytes > end - t.address) {
      return bad_table("a tensor has an impossible size");
    }
    address = t.address + t.bytes;
    at += t.slice;
  }
  if (at != bytes) return bad_table("tensors do not fill their records");
  for (uint32_t e = 0; e < experts; ++e) {
    Run& run = out->records.emplace_back();
    run.offset = run.address = offset + e * stride;
    run.stored = run.bytes = bytes;
    run.crc = field<uint32_t>(*table, 4 * (uint64_t{tensors} + e));
    run.expert = true;
  }
  *table = table->subspan(4 * (uint64_t{tensors} + experts));
  return {};
}

}  // namespace

Result<ExpertTable> find_experts(Bytes header) {
  ExpertTable table;
  if (field<uint32_t>(header, 4) < 2) return table;
  table.offset = field<uint64_t>(header, 112);
  table.bytes = field<uint32_t>(header, 120);
  const auto metadata = field<uint64_t>(header, 100);
  const uint64_t size = field<uint32_t>(header, 108);
  if (table.offset < metadata || table.bytes > size ||
      table.offset - metadata > size - table.bytes) {
    return bad_table("it is not in the metadata section");
  }
  return table;
}

Result<Experts> read_experts(Bytes table) {
  Experts out;
  for (uint64_t n = 0; !table.empty(); ++n) {
    if (n == kMaxLayers) return bad_table("it has too many layers");
    SLUICE_RETURN_IF_ERROR(read_layer(&table, kExperts + (n << kExpertBits), &out));
  }
  return out;
}

Status check_experts(const Experts& experts, const gguf::Header& header) {
  std::vector<const gguf::Tensor*> found;
  for (const gguf::Tensor& t : header.tensors) {
    if (t.offset >= kExperts) found.push_back(&t);
  }
  heap_sort(found, [](const auto* a, const auto* b) { return a->offset < b->offset; });
  const bool same =
      std::equal(found.begin(), found.end(), experts.tensors.begin(), experts.tensors.end(),
                 [](const gguf::Tensor* t, const ExpertTensor& e) {
                   return t->offset == e.address && t->bytes == e.bytes;
                 });
  return same ? Status() : bad_table("it does not have the tensors of the model");
}

}  // namespace sluice::qsf

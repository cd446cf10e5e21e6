// Finds the slices of experts in their records.
#include "native/expert_source.h"

#include <algorithm>
#include <array>

namespace sluice::native {

Result<qsf::Experts> read_experts(io::ByteSource& file, const gguf::Header& header) {
  std::array<uint8_t, qsf::kHeaderBytes> head{};
  SLUICE_RETURN_IF_ERROR(file.read(0, head));
  const Result<qsf::ExpertTable> place = qsf::find_experts(head);
  if (!place.ok()) return place.status();
  std::vector<uint8_t> table(static_cast<size_t>(place->bytes));
  SLUICE_RETURN_IF_ERROR(file.read(place->offset, table));
  Result<qsf::Experts> experts = qsf::read_experts(table);
  if (experts.ok()) SLUICE_RETURN_IF_ERROR(qsf::check_experts(*experts, header));
  return experts;
}

template <typename Body>
Status ExpertSource::for_slices(uint64_t offset, uint64_t length, Body&& body) const {
  if (offset < qsf::kExperts) return body(offset, length);
  const auto after = std::upper_bound(
      tensors_.begin(), tensors_.end(), offset,
      [](uint64_t at, const qsf::ExpertTensor& tensor) { return at < tensor.address; });
  const qsf::ExpertTensor* t = after == tensors_.begin() ? nullptr : &*(after - 1);
  if (t == nullptr || length > t->bytes || offset - t->address > t->bytes - length) {
    return error(Code::kTruncated, "a read exceeds a tensor of experts");
  }
  for (uint64_t at = offset - t->address; length > 0;) {
    const uint64_t expert = at / t->slice, skip = at % t->slice;
    const uint64_t n = std::min(length, t->slice - skip);
    SLUICE_RETURN_IF_ERROR(body(t->file + expert * t->stride + skip, n));
    at += n;
    length -= n;
  }
  return {};
}

Status ExpertSource::read(uint64_t offset, std::span<uint8_t> out) {
  return for_slices(offset, out.size(), [&](uint64_t at, uint64_t n) {
    const std::span<uint8_t> part = out.first(static_cast<size_t>(n));
    out = out.subspan(part.size());
    return file_->read(at, part);
  });
}

uint64_t ExpertSource::place(uint64_t offset, uint64_t length) {
  uint64_t out = kNoPlace;
  static_cast<void>(for_slices(offset, length, [&](uint64_t at, uint64_t n) {
    if (n == length) out = file_->place(at, n);
    return Status();
  }));
  return out;
}

Status ExpertSource::read_parts(std::span<const io::ReadPart> parts) {
  std::array<io::ReadPart, 8> slices;
  size_t n = 0;
  for (const io::ReadPart& part : parts) {
    const uint64_t at = place(part.offset, part.out.size());
    if (at == kNoPlace || n == slices.size()) return ByteSource::read_parts(parts);
    slices[n++] = {at, part.out};
  }
  return file_->read_parts(std::span(slices).first(n));
}

void ExpertSource::will_need(uint64_t offset, uint64_t length) {
  static_cast<void>(for_slices(offset, length, [&](uint64_t at, uint64_t n) {
    file_->will_need(at, n);
    return Status();
  }));
}

}  // namespace sluice::native

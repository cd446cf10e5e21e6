// Places slices in records and joins their checksums.
#include "convert/expert_records.h"

#include <algorithm>

#include "base/round_up.h"
#include "qsf/crc32.h"

namespace sluice::convert {
namespace {

uint64_t stride_of(const ExpertGroup& group) {
  return round_up(group.record, qsf::kRecordAlignment);
}

}  // namespace

bool has_experts(std::string_view tensor) {
  return tensor.ends_with("_exps.weight");
}

uint64_t ExpertRecords::alignment() const {
  return std::max(header_->alignment, qsf::kTensorAlignment);
}

// Adds the group of the layer whose first tensor is tensor i, with room for all its records.
Status ExpertRecords::open(size_t i, std::string_view layer) {
  const uint64_t experts = header_->tensors[i].ne[2];
  ExpertGroup& group = groups_.emplace_back();
  group.layer = layer;
  for (; i < header_->tensors.size(); ++i) {
    const gguf::Tensor& t = header_->tensors[i];
    if (!has_experts(t.name) || !t.name.starts_with(layer)) break;
    if (t.ne[2] != experts || t.ne[3] != 1) {
      return error(Code::kInvalidArgument,
                   "the experts of a layer cannot be stored side by side: its tensors have "
                   "different numbers of them");
    }
    group.slices.push_back(t.bytes / experts);
    group.record = round_up(group.record, alignment()) + group.slices.back();
  }
  if (group.record > UINT32_MAX || experts * stride_of(group) >> qsf::kExpertBits != 0) {
    return error(Code::kInvalidArgument, "QSF does not support an expert of more than 4 GB");
  }
  group.crcs.assign(static_cast<size_t>(experts), 0);
  SLUICE_RETURN_IF_ERROR(output_->pad_to(
      round_up(output_->done(), std::max(qsf::kRecordAlignment, header_->alignment))));
  group.offset = output_->done();
  end_ = 0;
  return output_->pad_to(group.offset + experts * stride_of(group));
}

// Joins the checksums of the current tensor's slices to those of their records.
void ExpertRecords::close() {
  static constexpr uint8_t kZeros[64] = {};
  for (size_t e = 0; e < sums_.size(); ++e) {
    uint32_t sum = groups_.back().crcs[e];
    for (uint64_t at = end_; at < at_; at += sizeof kZeros) {
      sum = qsf::crc32(std::span(kZeros).first(std::min<uint64_t>(sizeof kZeros, at_ - at)), sum);
    }
    groups_.back().crcs[e] = at_ == 0 ? sums_[e] : qsf::crc32_joined(sum, sums_[e], slice_);
  }
  if (!sums_.empty()) end_ = at_ + slice_;
  sums_.clear();
}

Status ExpertRecords::start(size_t i, std::string_view layer) {
  gguf::Tensor& t = header_->tensors[i];
  close();
  const bool first = groups_.empty() || groups_.back().layer != layer;
  if (first) SLUICE_RETURN_IF_ERROR(open(i, layer));
  const ExpertGroup& group = groups_.back();
  const uint64_t base = qsf::kExperts + (uint64_t{groups_.size() - 1} << qsf::kExpertBits);
  t.offset =
      first ? base
            : round_up(header_->tensors[i - 1].offset + header_->tensors[i - 1].bytes, alignment());
  slice_ = t.bytes / group.crcs.size();
  at_ = round_up(end_, alignment());
  done_ = 0;
  sums_.assign(group.crcs.size(), 0);
  return {};
}

Status ExpertRecords::write(std::span<const uint8_t> bytes) {
  const ExpertGroup& group = groups_.back();
  while (!bytes.empty()) {
    const uint64_t expert = done_ / slice_, skip = done_ % slice_;
    const auto part =
        bytes.first(static_cast<size_t>(std::min<uint64_t>(bytes.size(), slice_ - skip)));
    sums_[static_cast<size_t>(expert)] = qsf::crc32(part, sums_[static_cast<size_t>(expert)]);
    SLUICE_RETURN_IF_ERROR(
        output_->patch(group.offset + expert * stride_of(group) + at_ + skip, part));
    done_ += part.size();
    bytes = bytes.subspan(part.size());
  }
  return {};
}

}  // namespace sluice::convert

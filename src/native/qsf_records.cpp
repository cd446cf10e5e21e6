// Reads records of experts once: the bytes that are verified are those that readers get.
#include <algorithm>
#include <cstring>

#include "native/qsf_source.h"

namespace sluice::native {
namespace {

constexpr uint64_t kMaxRecord = 32 << 20;  // larger ones are read twice, like layers
constexpr uint64_t kRecords = 2;           // buffers: one is filled while the other is copied

}  // namespace

bool QsfSource::read_once(const qsf::Run& run) {
  return run.expert && run.stored <= kMaxRecord;
}

Status QsfSource::make_records() {
  if (record_ == 0) return {};
  const uint64_t one = round_up_to_line(record_) + sizeof(Record);
  records_ = std::vector<Record>(
      static_cast<size_t>(std::clamp<uint64_t>(file_->size() / 16 / one, 1, kRecords)));
  for (Record& record : records_) SLUICE_RETURN_IF_ERROR(record.bytes.allocate(record_));
  memory_ += records_.size() * one;
  return {};
}

// While a record is being verified, all its readers use the same buffer.
QsfSource::Record* QsfSource::take_record(size_t i) {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    Record* best = nullptr;
    for (Record& record : records_) {
      if (record.run == i) {
        best = &record;
        break;
      }
      if (record.users == 0 && (best == nullptr || record.used < best->used)) best = &record;
    }
    const bool holds = best != nullptr && best->run == i;
    if (!holds && checked_[i].state == State::kGood) return nullptr;
    if (best != nullptr) {
      best->run = i;
      best->used = ++clock_;
      ++best->users;
      return best;
    }
    changed_.wait(lock);
  }
}

Status QsfSource::read_record(size_t i, uint64_t at, std::span<uint8_t> out) {
  Record* const record = take_record(i);
  if (record == nullptr) return file_->read(runs_[i].offset + at, out);
  auto* const bytes = record->bytes.as<uint8_t>();
  const Status good = check(i, bytes);
  if (good.ok()) std::memcpy(out.data(), bytes + at, out.size());
  const std::lock_guard<std::mutex> lock(mutex_);
  --record->users;
  changed_.notify_all();
  return good;
}

}  // namespace sluice::native

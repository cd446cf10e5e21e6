#include "native/joined_requests.h"

#include <array>

namespace sluice::native {
namespace {

using residency::FillRequest;
using residency::kFillCapacity;

FillRequest& request(residency::FillQueue& queue, uint32_t n) {
  return queue.ring[n % kFillCapacity];
}

bool pending(residency::FillQueue& queue, uint32_t n) {
  return request(queue, n).state.load(std::memory_order_acquire) == residency::kFillPending;
}

}  // namespace

uint64_t JoinedRequests::place(const FillRequest& r) const {
  return sources_[r.file]->place(r.offset, r.length);
}

size_t JoinedRequests::take(residency::FillQueue& queue, std::span<uint32_t> out) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const uint32_t pushed = queue.pushed.load(std::memory_order_acquire);
  if (pushed - first_ > kFillCapacity) first_ = pushed - kFillCapacity;  // their places are taken
  while (first_ != pushed && !pending(queue, first_)) ++first_;
  uint32_t chosen = first_;
  for (uint32_t n = first_; n != pushed; ++n) {
    if (!pending(queue, n) || request(queue, n).unit != residency::kFillRow) continue;
    chosen = n;
    break;
  }
  if (chosen == pushed) return 0;
  size_t taken = 0;
  const auto take_one = [&](uint32_t n) {
    request(queue, n).state.store(residency::kFillTaken, std::memory_order_relaxed);
    out[taken++] = n;
  };
  take_one(chosen);
  const FillRequest& first = request(queue, chosen);
  const uint64_t begin = place(first);
  if (begin == io::ByteSource::kNoPlace) return taken;
  std::array<uint64_t, kFillCapacity> places;  // of what is pending in the same file
  for (uint32_t n = first_; n != pushed; ++n) {
    const FillRequest& r = request(queue, n);
    const bool candidate = pending(queue, n) && r.file == first.file;
    places[n % kFillCapacity] = candidate ? place(r) : io::ByteSource::kNoPlace;
  }
  uint64_t end = begin + first.length;
  for (bool found = true; found && taken < kMax;) {
    found = false;
    for (uint32_t n = first_; n != pushed && !found; ++n) {
      if (places[n % kFillCapacity] != end) continue;
      const uint64_t length = request(queue, n).length;
      if (end + length - begin > max_bytes_) continue;
      take_one(n);
      places[n % kFillCapacity] = io::ByteSource::kNoPlace;
      end += length;
      found = true;
    }
  }
  return taken;
}

}  // namespace sluice::native

#include "serve/job.h"

#include <chrono>

#include "base/clock.h"

namespace sluice::serve {
namespace {

size_t size_of(const Event& event) {
  return sizeof event + event.piece.text.size() +
         event.piece.top.size() * sizeof(event.piece.top[0]);
}

}  // namespace

bool Channel::push(Event event, double deadline) {
  const size_t size = size_of(event);
  std::unique_lock<std::mutex> lock(mutex_);
  while (bytes_ > 0 && bytes_ + size > kMaxBytes && !left_) {
    const double left_ms = deadline - monotonic_ms();
    if (left_ms <= 0) return false;
    room_.wait_for(lock, std::chrono::duration<double, std::milli>(left_ms));
  }
  if (left_) return false;
  bytes_ += size;
  events_.push_back(std::move(event));
  if (events_.size() == 1) there_.raise();
  return true;
}

bool Channel::pop(Event* out) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (events_.empty()) return false;
  *out = std::move(events_.front());
  events_.pop_front();
  bytes_ -= size_of(*out);
  if (events_.empty()) there_.lower();
  room_.notify_one();
  return true;
}

void Channel::leave() {
  const std::lock_guard<std::mutex> lock(mutex_);
  left_ = true;
  room_.notify_one();
}

}  // namespace sluice::serve
